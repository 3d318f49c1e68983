"""What a search is held against: every model of a zoo aligned with the child, one after the other."""

from hypothesis import strategies as st

from modelkeeper.matching import Index, Match, Prepared, align
from modelkeeper.matching.similarity import bucket
from tests.helpers import generated as net

zoos = st.lists(net.networks | net.tangles(), max_size=12)


def full_scan(
    zoo: dict[int, Prepared], child: Prepared, buckets: int = 1, floor: float = 0.0
) -> tuple[Match, ...]:
    every = [Match(key, align(model, child).similarity) for key, model in zoo.items()]
    useful = [match for match in every if match.similarity >= floor]
    top = sorted({bucket(match.similarity) for match in useful}, reverse=True)[:buckets]
    chosen = [match for match in useful if bucket(match.similarity) in top]
    return tuple(sorted(chosen, key=lambda match: (-match.similarity, match.key)))


def filled(models: dict[int, Prepared]) -> Index:
    index = Index(threads=1)
    for key, model in models.items():
        index.add(key, model)
    return index
