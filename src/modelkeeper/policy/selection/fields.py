"""Which of very many candidates must be looked at one by one? Candidates as arrays, and the first of them.

    arrays = arrays_of(policy("benefit"))      None: a policy that ranks candidates alone
    arrays.first(field, among, 22)             their places: the first 22 of its ranking are among these
    first(22, -similarity, -created)           places of the first by several keys, and of their equals

A field holds what decides of each candidate, number for number as `Candidate` does. Whoever ranks just those
that `first` leaves finds the same first ones as whoever ranks all: a property test holds it.
"""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from modelkeeper.matching.similarity import buckets_of
from modelkeeper.policy.credit import DOUBTED, REFUTED
from modelkeeper.policy.selection.base import Candidate, Policy, Terms
from modelkeeper.policy.selection.benefit import (
    BENEFIT,
    INEXACT,
    LEAST_TRUST,
    MEMORISED,
    MEMORISED_FULLY,
    OTHER_DATA,
    POOR_STANDING,
    UNKNOWN_STANDING,
)
from modelkeeper.policy.selection.buckets import BUCKETED

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class Field:
    """Candidates, one in each place of the arrays; the fields are those of `Candidate`."""

    keys: Ints  # what they are known by
    similarity: Floats
    goodness: Floats  # of their metrics; NaN: none is known
    comparable: Ints  # of which this is the same, goodness can be compared
    standing: Floats  # NaN: not known
    gap: Floats  # NaN: not known
    credit: Floats
    created: Floats
    same_data: Bools  # were they trained on the child's data set?
    exact: NDArray[np.int8]  # 1: it is; 0: it is not; -1: not known
    rewired: Floats
    normed: Bools

    def __len__(self) -> int:
        return len(self.keys)

    def at(self, places: Ints | Bools) -> "Field":
        """The candidates of these places."""
        return replace(self, **{name: getattr(self, name)[places] for name in self.__dataclass_fields__})

    def joined(self, other: "Field") -> "Field":
        """These candidates, and then others."""
        each = {name: (getattr(self, name), getattr(other, name)) for name in self.__dataclass_fields__}
        return Field(**{name: np.concatenate(both) for name, both in each.items()})

    def groups(self, terms: Terms) -> tuple[Ints, Ints, Ints]:
        """The places of who may be chosen, whose claims were refuted, and who is far below its peers."""
        refuted = self.credit <= REFUTED
        outliers = ~refuted & (self.standing < terms.poor)  # who has no standing is no outlier
        return tuple(map(np.flatnonzero, (~refuted & ~outliers, refuted, outliers)))  # type: ignore[return-value]

    def nearest(self, among: Ints, most: int) -> Ints:
        """The first of these places by what decides between equals: similarity, then age."""
        return among[first(most, -self.similarity[among], -self.created[among])]


class Arrays(Protocol):
    """What a policy can say of candidates in arrays."""

    def first(self, field: Field, among: Ints, most: int) -> Ints:
        """Places, of those given, that hold the first `most` of the ranking of all of these."""
        ...

    def rivals(self, field: Field, among: Ints) -> int:
        """Of how many of these is the first said to be the best?"""
        ...

    def why_won(self, winner: Candidate, rivals: int, data: str) -> str:
        """Why the first is chosen, in words."""
        ...


def arrays_of(policy: Policy) -> Arrays | None:
    """How a policy ranks arrays; None: it ranks candidates alone."""
    if policy is BENEFIT:
        return _Benefit()
    return _Buckets() if policy is BUCKETED else None


def first(most: int, *keys: Floats) -> Ints:
    """The places of the first `most` in the order of the keys, and of all that equal the last of these."""
    if len(keys[0]) <= most:
        return np.arange(len(keys[0]))
    last = np.partition(keys[0], most - 1)[most - 1]
    before, equal = np.flatnonzero(keys[0] < last), np.flatnonzero(keys[0] == last)
    if len(keys) > 1:
        equal = equal[first(most - len(before), *(key[equal] for key in keys[1:]))]
    return np.concatenate([before, equal])


def benefits(field: Field) -> Floats:
    """`benefit.expected_benefit` of each candidate."""
    quality = qualities(field.standing)
    doubt = (np.nan_to_num(field.gap) - MEMORISED) / (MEMORISED_FULLY - MEMORISED)
    trust = 1 - (1 - LEAST_TRUST) * np.maximum(0.0, np.minimum(1.0, doubt))
    believed = trust * field.credit
    fed = 1 - field.rewired
    fidelity = np.where(
        field.exact == 1, 1.0, INEXACT * field.similarity * np.where(field.normed, fed, fed * fed)
    )
    expected: Floats = fidelity * quality * believed * np.where(field.same_data, 1.0, OTHER_DATA)
    return expected


def qualities(standing: Floats) -> Floats:
    """What the standing of each parent counts in that; NaN: it is not known."""
    place = np.where(np.isnan(standing), UNKNOWN_STANDING, standing)
    good = np.minimum(1.0, place / POOR_STANDING)
    quality: Floats = good * good * (0.8 + 0.2 * place)
    return quality


class _Benefit:
    def first(self, field: Field, among: Ints, most: int) -> Ints:
        expected = benefits(field.at(among))
        return among[first(most, -expected, -field.similarity[among], -field.created[among])]

    def rivals(self, field: Field, among: Ints) -> int:
        return len(among)

    def why_won(self, winner: Candidate, rivals: int, data: str) -> str:
        return BENEFIT.why_best_of(winner, rivals, data)


class _Buckets:
    def first(self, field: Field, among: Ints, most: int) -> Ints:
        buckets = buckets_of(field.similarity[among])
        chosen = [np.empty(0, np.int64)]
        for number in np.unique(buckets)[::-1]:
            if sum(map(len, chosen)) >= most:
                break
            members = among[buckets == number]
            measured = members[~np.isnan(field.goodness[members])]
            for group in np.unique(field.comparable[measured]):  # each one's best compete with the others'
                alike = measured[field.comparable[measured] == group]
                doubted = (field.credit[alike] < DOUBTED).astype(np.float64)
                tie = -field.similarity[alike], -field.created[alike]
                chosen.append(alike[first(most, doubted, -field.goodness[alike], *tie)])
            unknown = members[np.isnan(field.goodness[members])]
            other = (~field.same_data[unknown]).astype(np.float64)
            tie = -field.similarity[unknown], -field.created[unknown]
            chosen.append(unknown[first(most, other, *tie)])
        return np.concatenate(chosen)

    def rivals(self, field: Field, among: Ints) -> int:
        buckets = buckets_of(field.similarity[among])
        return int(np.count_nonzero(buckets == buckets.max()))

    def why_won(self, winner: Candidate, rivals: int, data: str) -> str:
        return BUCKETED.why_best_of(winner, rivals, data)
