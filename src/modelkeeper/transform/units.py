"""From which of the parent's units does each unit of the child come, and by which share is it read?

A unit map goes from a parent's space to a child's.

    wider      every source is kept; some are copied. Copies of a source are read by shares that sum to one,
               so that what is computed stays the same, and that differ, so that copies part in training
    compared   copied in both of two values that are multiplied with each other, each by the root of its share
    filled     every source is copied equally often; what is left over is the mean of the others, or zero
    narrower   the most important units of the whole space are kept, in their order
    rows       looked up by identity: row i stays row i; new rows are the mean of the old ones
    centred    a kernel keeps its middle

Everything here is pure; randomness comes in as a seed.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

Index = np.ndarray[Any, np.dtype[np.int64]]
Shares = np.ndarray[Any, np.dtype[np.float64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]

NOTHING = -1  # a unit without a source: zero
MEAN = -2  # a unit without a source: the mean of all of them


@dataclass(frozen=True, eq=False)
class UnitMap:
    """For each unit of the child its source in the parent, and the share by which it is read."""

    source: Index
    share: Shares
    parents: int  # units of the parent
    read: Index | None = None  # where it differs: the source for what reads the units
    made: Shares | None = None  # what makes a unit is multiplied by it; None: 1

    @property
    def complete(self) -> bool:
        """Is every unit of the parent there, and no mean of them, so that the child can compute the same?"""
        return bool(
            np.array_equal(np.unique(self.source[self.source >= 0]), np.arange(self.parents))
            and (self.source != MEAN).all()
        )

    @property
    def identical(self) -> bool:
        """Is every unit the parent's unit of the same number?"""
        return len(self.source) == self.parents and bool((self.source == np.arange(self.parents)).all())


def identity(size: int) -> UnitMap:
    """Map each unit to itself."""
    return UnitMap(np.arange(size), np.ones(size), size)


def widen(parents: int, size: int, seed: tuple[int, ...], *, evenly: bool = False) -> UnitMap:
    """Keep every unit and copy some, with unequal shares that sum to one for each source.

    `evenly`: copies go round the units in order, for spaces over which a statistic is taken: where `size` is
    a multiple, all are copied equally often and the statistic stays the same.
    """
    if parents == 0:
        return padded(parents, size)
    rng = np.random.default_rng(seed)
    extra = size - parents
    if evenly:
        copied = np.arange(extra) % parents
    else:
        rounds = [rng.permutation(parents) for _ in range(-(-extra // parents))]
        copied = np.concatenate(rounds)[:extra] if rounds else np.arange(0)
    source = np.concatenate([np.arange(parents), copied])
    weight = rng.uniform(0.5, 1.5, size)  # of one that is not copied any weight is all of it: its share is 1
    return UnitMap(source, weight / np.bincount(source, weight, parents)[source], parents)


def compare(parents: int, size: int, seed: tuple[int, ...], total: float) -> UnitMap:
    """Copy units that two values are compared by (queries, keys): the squares of factors sum to `total`."""
    wider = widen(parents, size, seed)
    return UnitMap(wider.source, wider.share, parents, made=np.sqrt(wider.share * total))


def fill(parents: int, size: int, seed: tuple[int, ...], *, mean: bool) -> UnitMap:
    """Copy every unit equally often; the rest is the mean of the others and not read, or zero.

    What reads a zero does not matter, so it reads it like another unit: or neither could ever learn.
    """
    copies = size // parents * parents
    copied = widen(parents, copies, seed, evenly=True)
    rest = size - copies
    source = np.concatenate([copied.source, np.full(rest, MEAN if mean else NOTHING)])
    read = np.concatenate([copied.source, np.full(rest, NOTHING) if mean else np.arange(rest) % parents])
    return UnitMap(source, np.concatenate([copied.share, np.full(rest, parents / copies)]), parents, read)


def narrow(importance: Shares, size: int) -> UnitMap:
    """Keep the `size` most important units, in their order. Ties go to the earlier unit."""
    kept = np.sort(np.argsort(-importance, kind="stable")[:size])
    return UnitMap(kept, np.ones(size), len(importance))


def rows(parents: int, size: int) -> UnitMap:
    """Keep rows that are looked up by number: row i stays row i, a new one is the mean (of none: zero)."""
    source = np.arange(size)
    return UnitMap(np.where(source < parents, source, MEAN if parents else NOTHING), np.ones(size), parents)


def padded(parents: int, size: int) -> UnitMap:
    """Keep the first units; new ones are zero."""
    source = np.arange(size)
    return UnitMap(np.where(source < parents, source, NOTHING), np.ones(size), parents)


def centred(parents: int, size: int) -> UnitMap:
    """Keep the middle of a kernel: grown with zeros around it, or cut at its edges."""
    source = np.arange(size) - (size - parents) // 2
    return UnitMap(np.where((source >= 0) & (source < parents), source, NOTHING), np.ones(size), parents)


def nearest(parents: int, size: int) -> UnitMap:
    """Sample positions anew at another resolution; the shares keep the sum over all positions."""
    source = ((np.arange(size) + 0.5) * parents / size).astype(np.int64)
    return UnitMap(source, np.full(size, parents / size), parents)


def cyclic(parents: int, size: int) -> UnitMap:
    """Repeat channels of input data in their order: an average of what they had."""
    source = np.arange(size) % parents
    return UnitMap(source, np.full(size, parents / size), parents)
