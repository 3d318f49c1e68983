"""Models from files and folders of all kinds: what users import of importing."""

from modelkeeper.importing.bulk import import_models
from modelkeeper.importing.mlflow_store import import_runs
from modelkeeper.importing.outcomes import FAILED, IMPORTED, SKIPPED, WOULD, Outcome

__all__ = ["FAILED", "IMPORTED", "SKIPPED", "WOULD", "Outcome", "import_models", "import_runs"]
