"""What is a candidate, what is a choice, and what must a policy be able to do?

A policy ranks candidates and explains the ranking. `modelkeeper.policy.selection` registers those that there
are; to add one, write a class with the methods of `Policy` and hand an object of it to `register`, or offer
it by an entry point (`modelkeeper.plugins`). Everything here is pure: no zoo, no disk, no clock.
"""

from collections.abc import Collection, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

from modelkeeper.errors import InvalidSetting
from modelkeeper.policy.credit import REFUTED
from modelkeeper.policy.quality import Metric

FEW = 2_000  # models; of so few a search may look at all
ALL_BUCKETS, SOME_BUCKETS = 10, 3  # all: `matching.similarity.BUCKETS`, which would need NumPy


class Candidate(Struct, frozen=True, kw_only=True):
    """A model of the zoo that could become the parent."""

    id: str
    name: str
    similarity: float
    metric: Metric | None = None
    standing: float | None = None  # of its metric, among its peers: `quality.standing`
    gap: float | None = None  # how much better it is on the data it was trained on: `quality.gap`
    data: str = ""
    task: str = ""
    exact: bool | None = None  # will the child compute what the parent computes?
    rewired: float = 0.0  # which share of its layers is fed with something else than in the parent
    normed: bool = True  # does it have batch norms?
    created: float = 0.0
    credit: float = 1.0  # how far what is claimed of it is believed: `policy.credit`

    def __post_init__(self) -> None:
        for name in ("similarity", "standing", "rewired", "credit"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"the {name} of candidate {self.id!r} is {value}, not from 0 to 1")
        if (self.metric is None) != (self.standing is None):
            raise ValueError(f"candidate {self.id!r} needs a metric and its standing, or neither")

    @property
    def refuted(self) -> bool:
        """Did others find that what is claimed of it does not hold?"""
        return self.credit <= REFUTED


class RunnerUp(Struct, frozen=True):
    """A candidate that lost."""

    candidate: Candidate
    why_lost: str


class Choice(Struct, frozen=True):
    """The parent, or None for a cold start; the reason either way."""

    parent: Candidate | None
    reason: str
    runners_up: tuple[RunnerUp, ...] = ()


class Terms(Struct, frozen=True, kw_only=True):
    """What a candidate must meet to become the parent, whatever the policy.

    Raises:
        InvalidSetting: The minimum is not from 0 to 1.
    """

    minimum: float = 0.3  # a candidate less similar than this is not taken
    preferred: Collection[str] = ()  # names or ids: if one reaches the minimum, the others have no chance
    excluded: Collection[str] = ()  # names or ids that are not taken; stronger than `preferred`
    poor: float = 0.0  # a standing below which a candidate is not taken unless it is preferred
    worth: float = 0.0  # the least expected benefit of a candidate that is not preferred

    def __post_init__(self) -> None:
        if not 0 <= self.minimum <= 1:
            raise InvalidSetting("minimum", str(self.minimum), "give a similarity from 0 to 1")


@runtime_checkable
class Policy(Protocol):
    """How a parent is chosen among candidates that are similar enough.

    One object serves all queries, from several threads: it keeps nothing between two calls. `data` is always
    the data set that the child is trained on, "" if it is not known. A class that derives from this one
    inherits what suits a policy that looks at similarity and quality alone.
    """

    name: str  # what users call it
    description: str  # one line for people
    plans_first: bool = False  # does it need to know what a plan says (exact, rewired) before it ranks?

    def rank(self, pool: Sequence[Candidate], data: str) -> list[Candidate]:
        """All candidates of the pool, the best first. Their order in the pool must not matter."""
        ...

    def why_won(self, winner: Candidate, pool: Sequence[Candidate], data: str) -> str:
        """Why the first of the ranking is chosen, in words."""
        ...

    def why_lost(self, loser: Candidate, winner: Candidate, data: str) -> str:
        """Why another one of the ranking is not chosen, in words."""
        ...

    def depth(self, models: int) -> int:
        """How many buckets of similarity a search among so many models must go through, from the top."""
        return 1

    def benefit(self, candidate: Candidate, data: str) -> float:
        """What training is expected to gain from this parent, from 0 to 1.

        Below the least that is worth it (`Terms.worth`) nobody is taken; and where plans come first, those
        who may gain most get one. A policy that does not estimate it takes whoever it ranks first.
        """
        return 1.0

    def benefit_parts(self, candidate: Candidate, data: str) -> str:
        """What the expected benefit is made of, in words."""
        return f"similarity {candidate.similarity:.2f}"


def thorough(models: int) -> int:
    """How many buckets a search goes through that is to find more than the most similar models."""
    return ALL_BUCKETS if models <= FEW else SOME_BUCKETS
