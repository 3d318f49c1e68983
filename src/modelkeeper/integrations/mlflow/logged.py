"""Which models does a tracking server or a registry of MLflow hold, and what is said of them?

    for logged in logged_models(experiment="flowers"):
        logged.meta                          metrics, tags, the data set, the parent
        logged.fetch(folder)                 its files, from wherever MLflow keeps them

Nothing of a model is loaded here: what lies in its folder is read by `modelkeeper.importing`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlflow
from mlflow.entities import LoggedModel, Run

from modelkeeper.errors import InvalidSetting
from modelkeeper.policy.objective import numbers
from modelkeeper.zoo.records import MAX_NAME, MAX_TAGS

_OWN = ("mlflow.", "modelkeeper.")  # tags that tools write
_PAGE = 100


@dataclass(frozen=True)
class Logged:
    """A model that MLflow keeps, and what is known of it."""

    uri: str  # for people, and for MLflow: models:/m-...
    name: str
    meta: dict[str, Any] = field(default_factory=dict)

    def fetch(self, folder: Path) -> Path:
        """Its files, in a folder of this machine."""
        return Path(mlflow.artifacts.download_artifacts(artifact_uri=self.uri, dst_path=str(folder)))

    def shapes(self, folder: Path) -> tuple[tuple[int, ...], ...]:
        """The shapes of its inputs, if its signature says them; of a batch of two."""
        signature = mlflow.models.Model.load(str(folder)).signature
        specs = getattr(getattr(signature, "inputs", None), "inputs", ())
        if not all(hasattr(spec, "shape") for spec in specs):
            return ()
        return tuple(tuple(2 if size < 0 else int(size) for size in spec.shape) for spec in specs)


def logged_models(*, experiment: str = "", registered_model: str = "", run: str = "") -> Iterator[Logged]:
    """The models of an experiment, of a registered model (all versions) or of a run.

    Args:
        experiment: Its name.
        registered_model: Its name.
        run: Its id.

    Raises:
        InvalidSetting: None or several of these were given, or there is no such experiment.
    """
    given = {"experiment": experiment, "registered_model": registered_model, "run": run}
    if sum(map(bool, given.values())) != 1:
        said = ", ".join(name for name, value in given.items() if value) or "nothing"
        raise InvalidSetting("where", said, f"give one of {', '.join(given)}")
    client = mlflow.MlflowClient()
    if registered_model:
        for version in client.search_model_versions(f"name='{registered_model}'"):
            uri = f"models:/{registered_model}/{version.version}"
            yield _logged(client, uri, registered_model, version.run_id or "", None)
        return
    if run:
        found = client.get_run(run)
        place, condition = found.info.experiment_id, f"source_run_id='{run}'"
    else:
        known = client.get_experiment_by_name(experiment)
        if known is None:
            raise InvalidSetting("experiment", repr(experiment), "MLflow has none of this name")
        place, condition = known.experiment_id, None
    token: str | None = None
    while token != "":
        page = client.search_logged_models([place], condition, max_results=_PAGE, page_token=token)
        for model in page:
            yield _logged(client, f"models:/{model.model_id}", model.name, model.source_run_id or "", model)
        token = page.token or ""


def run_meta(run: Run) -> dict[str, Any]:
    """What a run says of the model that it trained: its last metrics, its tags and parameters, its data."""
    data = run.data
    said = {**data.params, **{key: value for key, value in data.tags.items() if not key.startswith(_OWN)}}
    tags = [text for key, value in said.items() if len(text := f"{key}={value}") <= MAX_NAME]
    meta: dict[str, Any] = {
        "metrics": numbers({key: value for key, value in data.metrics.items() if not key.startswith(_OWN)}),
        "tags": [text for text in tags if text.isprintable()][:MAX_TAGS],
    }
    if run.inputs is not None and run.inputs.dataset_inputs:
        meta["data"] = run.inputs.dataset_inputs[0].dataset.name
    if "modelkeeper.parent" in data.tags:
        parents = data.tags.get("modelkeeper.parents", "").split(", ")
        meta["parent"] = parents if len(parents) > 1 else data.tags["modelkeeper.parent"]
    return meta


def _logged(client: Any, uri: str, name: str, run_id: str, model: LoggedModel | None) -> Logged:
    if not run_id:
        return Logged(uri, name)
    run = client.get_run(run_id)
    meta = run_meta(run)
    outputs = run.outputs.model_outputs if run.outputs is not None else []
    step = next((out.step for out in outputs if model is not None and out.model_id == model.model_id), 0)
    if step and model is not None:  # a checkpoint: it is as good as the run was then
        meta["metrics"] |= numbers({metric.key: metric.value for metric in model.metrics or ()})
    return Logged(uri, name, meta)
