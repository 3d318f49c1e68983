"""Which other sizes may a model have, and what is it then? Sliders of its width and of its stages.

sliders(graph)                       what can be changed and how far, and what cannot, and why
resized(graph, 1.5, (6, 4))          half as wide again, with six and four blocks
read_sizes("1.5", ["6,4"])           (1.5, (6, 4)): as they stand in an address
written_sizes(1.5, (6, 4))           {"width": "1.5", "blocks": "6,4"}: the other way round
"""

from collections.abc import Sequence

from msgspec import Struct

from modelkeeper.errors import InvalidMeta
from modelkeeper.graph import Graph
from modelkeeper.graph.repeats import Stage, stages
from modelkeeper.graph.resize import changeable, resize, unchangeable

NARROWEST, WIDEST = 0.25, 4.0
MOST_STAGES = 12  # that have a slider
MOST_REASONS = 12
DEEPER = 4  # times as many blocks
LEAST_MOST = 12  # blocks that any stage may have


class Blocks(Struct, frozen=True):
    """A stage: the first layer of its first block, layers of a block, blocks now and at most."""

    layer: str
    period: int
    count: int
    most: int


class Fixed(Struct, frozen=True):
    """Why widths stay: of how many spaces, and the first layer that knows one, with its size."""

    why: str
    spaces: int
    layer: str
    size: int


class Sliders(Struct, frozen=True):
    """What of a model can be changed, and what stays."""

    widths: int  # spaces that get wider or narrower
    blocks: tuple[Blocks, ...]
    more_stages: int  # that have no slider
    fixed: tuple[Fixed, ...]
    more_fixed: int  # reasons that are not told


def sliders(graph: Graph) -> Sliders:
    """What can be changed of a graph, and what not."""
    found = stages(graph)
    blocks = (
        Blocks(graph.layers[stage.start].name, stage.period, stage.count, _most(stage)) for stage in found
    )
    reasons: dict[str, Fixed] = {}
    for each in unchangeable(graph):
        known = reasons.get(each.why)
        reasons[each.why] = (
            Fixed(each.why, known.spaces + 1, known.layer, known.size)
            if known is not None
            else Fixed(each.why, 1, each.layer, each.size)
        )
    return Sliders(
        widths=len(changeable(graph)),
        blocks=tuple(blocks)[:MOST_STAGES],
        more_stages=max(0, len(found) - MOST_STAGES),
        fixed=tuple(reasons.values())[:MOST_REASONS],
        more_fixed=max(0, len(reasons) - MOST_REASONS),
    )


def _most(stage: Stage) -> int:
    return max(LEAST_MOST, DEEPER * stage.count)


def resized(graph: Graph, width: float, blocks: Sequence[int]) -> Graph:
    """A graph of other sizes, within what the sliders offer.

    Raises:
        InvalidGraph: It would be too large.
        InvalidMeta: No slider goes so far.
    """
    if not NARROWEST <= width <= WIDEST:  # nan is not, either
        raise InvalidMeta("width", f"{width:g}", f"say a factor from {NARROWEST:g} to {WIDEST:g}")
    if not blocks:
        return resize(graph, width=width)
    found = stages(graph)
    if len(blocks) > len(found):
        raise InvalidMeta("blocks", ",".join(map(str, blocks)), f"the model has {len(found)} stages")
    for stage, count in zip(found, blocks, strict=False):
        if not 1 <= count <= _most(stage):
            raise InvalidMeta("blocks", str(count), f"say 1 to {_most(stage)} for this stage")
    return resize(graph, width=width, blocks=blocks)


def read_sizes(width: str, blocks: Sequence[str]) -> tuple[float, tuple[int, ...]]:
    """A width and numbers of blocks as an address has them; empty ones change nothing.

    Raises:
        InvalidMeta: They are no numbers.
    """
    said = [each.strip() for some in blocks for each in some.split(",") if each.strip()]
    try:
        factor = float(width.strip() or "1")
    except ValueError:
        raise InvalidMeta("width", width[:40], "say a factor like 1.5") from None
    try:
        return factor, tuple(int(each) for each in said)
    except ValueError:
        raise InvalidMeta("blocks", ",".join(said)[:40], "say numbers like 6,4") from None


def written_sizes(width: float, blocks: Sequence[int]) -> dict[str, str]:
    """The same for an address; what changes nothing is left out."""
    said = {"width": f"{width:g}" if width != 1 else "", "blocks": ",".join(map(str, blocks))}
    return {name: value for name, value in said.items() if value}
