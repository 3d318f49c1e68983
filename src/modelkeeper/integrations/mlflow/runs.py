"""How does a model that MLflow follows come into a zoo, with what its run has measured?

    mlflow.pytorch.autolog()
    with mlflow.start_run():
        trainer.fit(model)
        register_run(client, model, {"data": "Flowers102", "task": "classification"})

The model is the one at hand, so nothing that MLflow wrote needs to be read. Models of older runs come in by
`modelkeeper.importing.import_runs`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import mlflow

from modelkeeper.client import ModelKeeperClient
from modelkeeper.errors import InvalidSetting
from modelkeeper.faults import WRONG_REGISTRATION
from modelkeeper.integrations.mlflow.logged import run_meta
from modelkeeper.policy.objective import by_name

if TYPE_CHECKING:
    from modelkeeper.zoo.records import Record


def register_run(
    client: ModelKeeperClient,
    model: Any,
    meta: Mapping[str, Any] | None = None,
    *,
    run: str = "",
    monitor: str = "",
    mode: str = "auto",
    example_inputs: Any = None,
) -> "Record | None":
    """Register the model that a run has trained, with the metrics, parameters and tags of the run.

    Args:
        client: Of the zoo.
        model: As it was trained.
        meta: What MLflow does not know: task, project, visibility; it counts before what MLflow says.
        run: The id of the run. Default: the active one, else the last that was.
        monitor: The metric that models are compared by, if the run has several.
        mode: "min" or "max", where the name of the metric does not tell.
        example_inputs: What the model runs on, if that cannot be found from the model itself.

    Returns:
        Its record; None if the zoo did not take it (a warning says why).

    Raises:
        InvalidSetting: There is no run, or `mode` is needed.
        InvalidMeta, InvalidMetric: `meta` cannot be so, or the run does not say how good the model is.
    """
    objective = by_name(monitor, mode) if monitor else None
    said: dict[str, Any] = {}
    with client.faults.guard("The model was not registered", WRONG_REGISTRATION):
        found = mlflow.get_run(run) if run else mlflow.active_run() or mlflow.last_active_run()
        if found is None:
            raise InvalidSetting("run", "none", "start a run, or give the id of one")
        said = run_meta(mlflow.get_run(found.info.run_id))  # an active run is as it was when it began
        metric = objective.measure(said["metrics"]) if objective is not None else None
        said |= {"metric": metric} if metric is not None else {}
        said |= dict(meta or {})
        record = client.register_model(model, said, example_inputs=example_inputs)
        if record is not None:
            mlflow.MlflowClient().set_tag(found.info.run_id, "modelkeeper.model", record.id)
        return record
    return None
