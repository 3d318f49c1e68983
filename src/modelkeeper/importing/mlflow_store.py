"""How do the models of a tracking server or a registry of MLflow come into a zoo?

    import_runs(client, experiment="flowers", meta={"task": "classification"})
    import_runs(client, registered_model="flowers-net", trust=True)        runs code that lies in the files

MLflow says where its models are and what their runs have measured; their folders are fetched one by one, and
imported as any other folder: what is in the zoo already is skipped, what fails does not stop the rest.
"""

import dataclasses
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelkeeper.errors import ModelKeeperError
from modelkeeper.importing.bulk import import_models
from modelkeeper.importing.outcomes import FAILED, Outcome
from modelkeeper.policy.objective import Objective, by_name, by_rule
from modelkeeper.text import first_line

if TYPE_CHECKING:
    from modelkeeper.client import ModelKeeperClient
    from modelkeeper.integrations.mlflow.logged import Logged

_PICKLED = "data/model.pth"  # of PyTorch; other files say themselves what their models run on


def import_runs(
    client: "ModelKeeperClient",
    *,
    experiment: str = "",
    registered_model: str = "",
    run: str = "",
    meta: Mapping[str, Any] | None = None,
    monitor: str = "",
    mode: str = "auto",
    trust: bool = False,
    dry_run: bool = False,
) -> list[Outcome]:
    """Take the models that MLflow keeps into a zoo, with the metrics, parameters and tags of their runs.

    Args:
        client: Whose zoo it is, and who registers.
        experiment: All models that were logged in the experiment of this name;
        registered_model: or all versions of the registered model of this name;
        run: or the models of the run with this id.
        meta: What holds for all of them: task, project ...; it counts before what MLflow says.
        monitor: The metric that models are compared by. Default: accuracy; else the only metric; else the
            loss; never one that was measured on the data trained on.
        mode: "min" or "max", where the name of the metric does not tell.
        trust: Run code that lies in the files: pickles and .pt2 programs of PyTorch, lambdas of Keras.
        dry_run: Read and describe, but register nothing.

    Returns:
        What became of each. Without a metric models are imported, too.

    Raises:
        InvalidSetting: Not one of the three was given, there is no such experiment, or `mode` is needed.
        InvalidMeta: `meta` cannot be so.
    """
    from modelkeeper.integrations.mlflow.logged import logged_models

    objective = by_name(monitor, mode) if monitor else None
    outcomes = []
    for logged in logged_models(experiment=experiment, registered_model=registered_model, run=run):
        said = {"name": logged.name, **_measured(logged.meta, objective), **(meta or {})}
        with tempfile.TemporaryDirectory(prefix="modelkeeper-") as folder:
            outcomes += _import(client, logged, Path(folder), said, trust, dry_run)
    return outcomes


def _measured(meta: dict[str, Any], objective: Objective | None) -> dict[str, Any]:
    """The same with the metric that the model is compared by; without metrics, if there is none."""
    metrics = meta.get("metrics", {})
    chosen = objective or by_rule(metrics)
    metric = chosen.measure(metrics) if chosen is not None else None
    rest = {key: value for key, value in meta.items() if key != "metrics"}
    return rest if metric is None else {**meta, "metric": metric}


def _import(
    client: "ModelKeeperClient", logged: "Logged", folder: Path, meta: dict[str, Any], trust: bool, dry: bool
) -> list[Outcome]:
    try:
        fetched = logged.fetch(folder)
        shapes = logged.shapes(fetched) if (fetched / _PICKLED).is_file() else ()
    except Exception as problem:  # noqa: BLE001 (stores fail in ways of their own; the rest goes on)
        reason = str(problem) if isinstance(problem, ModelKeeperError) else first_line(problem)
        return [Outcome(logged.uri, "MLflow", logged.name, FAILED, reason)]
    outcomes = import_models(client, fetched, meta=meta, inputs=shapes, trust=trust, dry_run=dry)
    return [dataclasses.replace(outcome, path=logged.uri, name=logged.name) for outcome in outcomes]
