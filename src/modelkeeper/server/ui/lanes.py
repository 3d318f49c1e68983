"""How are rows joined by lines? In lanes, as `git log --graph` does: lineages, and wires between layers.

    rows = draw(order, parents)              parents: of each id those that it comes from
    rows = draw(order, parents, most=8)      no more than so many lines side by side

An id stands in a row of its own, below all that it comes from. A line runs from each of these down to it, in
a lane that no line to another uses on the way: so a line keeps its lane for as long as it is. Lines to the
same id share one, but the line from the row just before goes straight down. Sets of lanes are numbers, bit by
bit, so that thousands of rows take no time.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple


class Row(NamedTuple):
    """An id, the lane that it stands in, and the lines around it as sets of lanes, bit by bit."""

    id: Any  # as it stands in `order`
    lane: int
    into: int  # lines from above that end here
    through: int  # lines that pass by
    out: int  # lines from here on down
    left_out: int  # lines from here that found no lane

    @property
    def above(self) -> list[tuple[int, int]]:
        """The lines of the upper half: from the lane at the upper edge to that at the middle."""
        return [*((at, self.lane) for at in lanes(self.into)), *((at, at) for at in lanes(self.through))]

    @property
    def below(self) -> list[tuple[int, int]]:
        """Those of the lower half: from the middle to the lower edge."""
        return [*((at, at) for at in lanes(self.through)), *((self.lane, at) for at in lanes(self.out))]

    @property
    def width(self) -> int:
        """How many lanes it takes."""
        return (self.into | self.through | self.out | 1 << self.lane).bit_length()


def draw(
    order: Sequence[Hashable], parents: Mapping[Any, Sequence[Hashable]], most: int | None = None
) -> list[Row]:
    """Rows of ids that stand in `order`, each behind its parents; others than these have no line.

    Args:
        order: The ids, from above.
        parents: Of each of them, those that it comes from.
        most: How many lines may run side by side, beside one that only goes to the next row. Those that are
            nearest to their ends go first; for the others there is no line, and the row says how many.
    """
    place = {identity: number for number, identity in enumerate(order)}
    children: list[list[int]] = [[] for _ in order]  # in their order, since they are found in it
    for number, identity in enumerate(order):
        for parent in dict.fromkeys(parents[identity]):
            if parent in place and place[parent] < number:
                children[place[parent]].append(number)
    taken = 0  # lanes that lines are in
    coming: dict[int, int] = {}  # the lanes of the lines to each row that is still to come
    rows: list[Row] = []
    for number, identity in enumerate(order):
        into = coming.pop(number, 0)
        lane = _lowest(into) if into else _lowest(~taken)
        taken &= ~into
        through, out, left_out = taken, 0, 0
        for child in children[number]:
            known, is_next = coming.get(child, 0), child == number + 1
            free = _lowest(~taken) if taken >> lane & 1 else lane
            if known and not is_next:
                out |= known & -known
            elif most is not None and free >= most and not is_next:
                left_out += 1
            else:
                coming[child] = known | 1 << free
                taken |= 1 << free
                out |= 1 << free
        rows.append(Row(identity, lane, into, through, out, left_out))
    return rows


def lanes(some: int) -> Iterator[int]:
    """The lanes of a set."""
    while some:
        yield _lowest(some)
        some &= some - 1


def _lowest(some: int) -> int:
    """The lowest lane of a set."""
    return (some & -some).bit_length() - 1
