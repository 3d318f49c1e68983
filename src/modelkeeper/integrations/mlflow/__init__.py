"""MLflow: runs that say how they started, and models that they logged; what users import."""

from modelkeeper.integrations.mlflow.runs import register_run
from modelkeeper.integrations.tracking import log_start

__all__ = ["log_start", "register_run"]
