"""Models in one file, on their way from one organisation to another: bundles."""

from modelkeeper.sharing.bringing import Outcome, Rules, import_bundle
from modelkeeper.sharing.bundle import is_bundle
from modelkeeper.sharing.exporting import Export

__all__ = ["Export", "Outcome", "Rules", "import_bundle", "is_bundle"]
