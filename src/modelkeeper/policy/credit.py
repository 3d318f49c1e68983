"""Is what is claimed of a model to be believed? By what starts from it brought to others, and who checked it.

    credit(outcomes, owner)     a factor from 0 to 1, and for how many users what came of it
    factors(model, good, bad)   the factors alone, of many models at once

What a registrant says of a model is a claim. What others find is an outcome: a race of a start from it
against a cold start (`raced`), a child's final value among its peers (`trained`), its claim compared with
what it does on held-out examples (`checked`). Each counts as good (its gain is above 0) or bad; a failed
check as much as three others, since it needs no bad luck.

Every user but the model's own owner has one voice, from -1 to 1: (good - bad) / (good + bad + 1). Then

    factor = (1 + G) / (1 + G + B)      G: all voices above 0, B: all below 0, without their sign

Nobody has spoken: 1. One lost race: 0.67. A failed check: 0.57. However often one user complains, it stays
above a half of what it would be without them. Two users who lost a race each bring it to 0.5, and the model
is refuted: nobody is given it unless by name, and it is no peer that others are measured by.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RACED, TRAINED, CHECKED = KINDS = ("raced", "trained", "checked")
FAILED_CHECK = 3  # weighs as much as so many other bad outcomes
REFUTED = 0.5  # at this credit, or below, a model is refuted; one user alone does not get it there
DOUBTED = 0.6  # below this it stands behind all others that claim the same


class Outcome(Struct, frozen=True, kw_only=True):
    """What somebody found of a model: good if the gain, from -1 to 1, is above 0."""

    parent: str  # the model's id
    user: str  # who says so: an id, in a zoo without users a name
    kind: str
    gain: float
    at: float = 0.0
    child: str = ""  # the id of the model that started from it; "": it was not registered

    def __post_init__(self) -> None:
        if self.kind not in KINDS or not -1 <= self.gain <= 1:
            raise ValueError(f"no outcome can be like this: {self}")


class Credit(Struct, frozen=True, kw_only=True):
    """How far a model's claim is believed, and how many users found what."""

    factor: float = 1.0
    held: int = 0  # users for whom a check held
    failed: int = 0  # ... or failed
    gained: int = 0  # users who gained by starting from it
    lost: int = 0  # ... or did not
    evidence: bool = False  # could anyone check it?

    @property
    def refuted(self) -> bool:
        """Have others found, not one alone, that its claim does not hold?"""
        return self.factor <= REFUTED

    def __str__(self) -> str:
        checks = f"claim checked by {self.held + self.failed}, failed for {self.failed}"
        said = [checks if self.held + self.failed else "claim not checked"]
        if self.gained + self.lost:
            said.append(f"starts from it helped {self.gained} and failed {self.lost} of its users")
        if self.refuted:
            said.append("refuted")
        return "; ".join(said)


def credit(outcomes: Iterable[Outcome], owner: str, evidence: bool = False) -> Credit:
    """Sum up what others than its owner found of a model."""
    good: dict[str, dict[str, int]] = {}
    bad: dict[str, dict[str, int]] = {}
    for outcome in outcomes:
        if outcome.user != owner:
            side = (good if outcome.gain > 0 else bad).setdefault(outcome.user, dict.fromkeys(KINDS, 0))
            side[outcome.kind] += 1
    above = below = 0.0
    found = dict.fromkeys(("held", "failed", "gained", "lost"), 0)
    none = dict.fromkeys(KINDS, 0)
    for user in sorted(good.keys() | bad.keys()):
        better, worse = good.get(user, none), bad.get(user, none)
        doubts = sum(worse.values()) + (FAILED_CHECK - 1) * worse[CHECKED]
        voice = _voice(sum(better.values()), doubts)
        above, below = above + max(0.0, voice), below + max(0.0, -voice)
        if better[CHECKED] != worse[CHECKED]:
            found["held" if better[CHECKED] > worse[CHECKED] else "failed"] += 1
        starts = better[RACED] + better[TRAINED] - worse[RACED] - worse[TRAINED]
        if starts:
            found["gained" if starts > 0 else "lost"] += 1
    factor = (1 + above) / (1 + above + below)
    return Credit(factor=factor, evidence=evidence, **found)


def factors(
    model: "NDArray[np.int64]", good: "NDArray[np.int64]", bad: "NDArray[np.int64]", models: int
) -> "NDArray[np.float64]":
    """The factor of each of many models, by how often each of their users found good or bad.

    Args:
        model: Whose users these are, from 0 on; those of one model in the order of their names.
        good: How many outcomes were good, for each user of each model.
        bad: How many were not; a failed check counts as `FAILED_CHECK`.
        models: How many there are.
    """
    import numpy as np

    voice = _voice(good, bad)
    above, below = (np.bincount(model, np.maximum(0.0, side), models) for side in (voice, -voice))
    factors: NDArray[np.float64] = (1 + above) / (1 + above + below)
    return factors


def _voice(good: Any, bad: Any) -> Any:
    return (good - bad) / (good + bad + 1)
