"""Can processes on all nodes of a Ray cluster use one zoo? Asked before any of them is started."""

import ray

from modelkeeper.errors import InvalidSetting
from modelkeeper.settings import MEMORY, Settings

NAMESPACE = "modelkeeper"


def nodes() -> int:
    """How many nodes the cluster has that this process is connected to."""
    return sum(bool(node["Alive"]) for node in ray.nodes())


def expect_shared(settings: Settings, machines: int, *, blobs: bool, what: str) -> None:
    """Return if processes on so many machines would see the same zoo.

    Args:
        settings: Of the zoo.
        machines: On which the processes may run.
        blobs: Do they need the files of models, too?
        what: What these processes are called in an error.

    Raises:
        InvalidSetting: They would not: each would have a zoo, or a part of one, of its own.
    """
    if settings.in_memory:
        advice = f"{what} are other processes, and see no memory of this one; give a folder or a database"
        raise InvalidSetting("home", repr(MEMORY), advice)
    if machines < 2:
        return
    if not settings.catalog or settings.catalog.startswith("sqlite"):
        advice = (
            f"it is a file of one machine, and {what} run on {machines}: each would have its own catalog. "
            "Set catalog (MODELKEEPER_CATALOG) to a PostgreSQL: postgresql+psycopg://user@host/zoo"
        )
        raise InvalidSetting("catalog", repr(settings.catalog or str(settings.catalog_place)), advice)
    if blobs and ("://" not in settings.blobs_url or settings.blobs_url.startswith(("file:", "memory:"))):
        advice = (
            f"it is a folder of one machine, and {what} run on {machines}: none has what another keeps. "
            "Set blobs (MODELKEEPER_BLOBS) to an object store: s3://bucket/zoo"
        )
        raise InvalidSetting("blobs", repr(settings.blobs_url), advice)
