"""How is a lineage drawn? Rows from ancestors to descendants, with lines in lanes, as `git log --graph` does.

    rows = draw(order, parents)      parents: of each model those that it started from, by id

A model stands in a row of its own, below all its parents. A line runs from each parent down to its child, in
a lane that no other line uses on the way; lines to the same child share a lane.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct


class Row(Struct, frozen=True):
    """A model, the lane that it stands in, and the lines around it as pairs of lanes: above it and below."""

    id: str
    lane: int
    above: tuple[tuple[int, int], ...]  # from the lane at the upper edge to that at the middle
    below: tuple[tuple[int, int], ...]  # from the middle to the lower edge
    width: int  # lanes in use


def draw(order: Sequence[str], parents: Mapping[str, Sequence[str]]) -> list[Row]:
    """Rows of models that stand in `order`, each behind its parents; others than these have no line."""
    place = {identity: number for number, identity in enumerate(order)}
    children: dict[str, list[str]] = {identity: [] for identity in order}
    for identity in order:
        for parent in dict.fromkeys(parents[identity]):
            if parent in place and place[parent] < place[identity]:
                children[parent].append(identity)
    lanes: list[str] = []  # of each lane the model that its line leads to; "": it is free
    rows: list[Row] = []
    for identity in order:
        coming = [lane for lane, target in enumerate(lanes) if target == identity]
        lane = coming[0] if coming else _free(lanes)
        above = [(at, lane if target == identity else at) for at, target in enumerate(lanes) if target]
        for at in coming:
            lanes[at] = ""
        passing = [(at, at) for at, target in enumerate(lanes) if target]
        leaving = []
        for child in sorted(children[identity], key=place.__getitem__):
            shared = next((at for at, target in enumerate(lanes) if target == child), None)
            if shared is None:
                shared = lane if lane >= len(lanes) or not lanes[lane] else _free(lanes)
                lanes.extend([""] * (shared + 1 - len(lanes)))
                lanes[shared] = child
            leaving.append((lane, shared))
        while lanes and not lanes[-1]:
            lanes.pop()
        below = tuple(dict.fromkeys([*passing, *leaving]))
        width = 1 + max([lane, *(at for pair in (*above, *below) for at in pair)])
        rows.append(Row(identity, lane, tuple(above), below, width))
    return rows


def _free(lanes: Sequence[str]) -> int:
    return next((at for at, target in enumerate(lanes) if not target), len(lanes))
