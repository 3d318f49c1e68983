"""How does a service read the graphs that it is sent? Small ones are remembered.

Trials of one search ask for few architectures again and again.
"""

import functools

from modelkeeper.graph import Graph, from_json

SMALL = 2**18  # bytes of a graph that is worth remembering


@functools.lru_cache(maxsize=64)
def _read_small(text: bytes) -> Graph:
    return from_json(text)


def read_graph(text: bytes) -> Graph:
    """A graph from its JSON."""
    return _read_small(text) if len(text) <= SMALL else from_json(text)
