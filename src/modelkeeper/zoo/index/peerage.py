"""What are the peers of a model like? Summed up once for all queries, until one of them changes.

    peerage = Peerage(columns)
    peerage.of(("classification", "CIFAR-10", "accuracy"), lower_is_better=False, viewer=viewer)

Which models are peers, `Columns.peers` says. Whoever sees other models has other peers.
"""

import threading
from collections import OrderedDict

from modelkeeper.policy.quality import Peers
from modelkeeper.policy.standings import peers_of
from modelkeeper.zoo.index.columns import Columns
from modelkeeper.zoo.records import Viewer

MOST = 4096  # groups, as different viewers see them, that are remembered

Group = tuple[str, str, str]  # task, data and metric


class Peerage:
    """The peers in one catalog, as its columns have them. Safe to use from several threads."""

    def __init__(self, columns: Columns) -> None:
        self._columns, self._lock = columns, threading.Lock()
        self._known: OrderedDict[tuple[object, ...], tuple[int, Peers]] = OrderedDict()

    def of(self, group: Group, lower_is_better: bool, viewer: Viewer | None = None) -> Peers:
        """What the peers of a group are like, of those that the viewer may see."""
        key = (group, lower_is_better, _seeing(viewer))
        changed = self._columns.times_changed(group)
        with self._lock:
            known = self._known.get(key)
        if known is not None and known[0] == changed:
            return known[1]
        values, voices = self._columns.peers(group, viewer)
        peers = peers_of(values, voices, lower_is_better)
        with self._lock:
            self._known[key] = changed, peers
            self._known.move_to_end(key)
            if len(self._known) > MOST:
                self._known.popitem(last=False)
        return peers


def _seeing(viewer: Viewer | None) -> object:
    """What decides which models a viewer sees."""
    if viewer is None or viewer.all:
        return None
    return "" if viewer.partner else (viewer.user, tuple(sorted(viewer.projects)))
