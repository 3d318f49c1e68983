"""Random networks of every kind of wiring: the graphs of `benchmarks/helpers/wiring.py`, as strategies."""

from hypothesis import strategies as st

from benchmarks.helpers.wiring import (
    Builder,
    bench201,
    darts,
    densenet,
    inception,
    lengthened,
    replaced,
    resnet,
    shuffled,
    towers,
    transformer,
    vgg,
    widened,
    without,
)
from modelkeeper.graph import Edge, Graph

__all__ = [
    "Builder",
    "Edge",
    "bench201",
    "crossed",
    "darts",
    "densenet",
    "inception",
    "lengthened",
    "networks",
    "operations",
    "replaced",
    "resnet",
    "series_parallel",
    "shuffled",
    "tangles",
    "towers",
    "transformer",
    "vgg",
    "widened",
    "widths",
    "without",
]

widths = st.sampled_from([4, 8, 12, 16, 24, 32])
series_parallel = st.one_of(
    st.builds(vgg, st.lists(widths, min_size=1, max_size=6), st.booleans()),
    st.builds(
        resnet, st.lists(st.integers(1, 3), min_size=1, max_size=3), widths, st.booleans(), st.booleans()
    ),
    st.builds(densenet, st.integers(1, 5), widths),
    st.builds(inception, st.integers(1, 3), widths),
    st.builds(transformer, st.integers(1, 3), widths, widths, masked=st.booleans()),
)
operations = st.lists(st.sampled_from(["conv3", "conv1", "skip", "none"]), min_size=6, max_size=6)
crossed = st.one_of(
    st.builds(bench201, st.lists(operations, min_size=1, max_size=3), widths),
    st.builds(darts, st.integers(1, 4), widths),
    st.builds(towers, st.integers(1, 3), st.integers(1, 3), widths),
)
networks = st.one_of(series_parallel, crossed)


@st.composite
def tangles(draw: st.DrawFn, most: int = 12) -> Graph:
    """Any wiring at all: every layer takes any earlier ones."""
    b = Builder()
    b.add("input")
    for _ in range(draw(st.integers(1, most))):
        count = draw(st.integers(1, min(3, len(b.layers))))
        sources = draw(
            st.lists(st.integers(0, len(b.layers) - 1), min_size=count, max_size=count, unique=True)
        )
        if count == 1:
            b.conv(
                sources[0],
                draw(widths),
                draw(widths),
                draw(st.sampled_from([1, 3])),
                norm=draw(st.booleans()),
            )
        else:
            b.add(draw(st.sampled_from(["add", "concat", "subtract"])), *sources)
    return b.graph()
