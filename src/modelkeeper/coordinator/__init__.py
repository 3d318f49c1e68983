"""Coordinators: query, register, list and remove over a zoo, in this process or behind HTTP.

`base` says what can be asked of one, `open` opens one: `coordinator.open("zoo/").query(graph, query)`.
"""

from modelkeeper.coordinator.base import Coordinator
from modelkeeper.coordinator.opening import Target, open, open_local, open_remote, target  # noqa: A004

__all__ = ["Coordinator", "Target", "open", "open_local", "open_remote", "target"]
