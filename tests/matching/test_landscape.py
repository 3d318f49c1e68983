"""The zoo from above: the same whatever the order, each architecture once, those that are alike together."""

import itertools
import random
import threading
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from numpy.typing import NDArray

from modelkeeper.graph import Graph
from modelkeeper.matching import Index, Prepared, landscape, prepare
from modelkeeper.matching.clusters import _distances
from modelkeeper.matching.landscape import Landscape, survey
from modelkeeper.matching.plane import apart
from modelkeeper.matching.similarity import mutual_distances
from tests.helpers import generated as net

WIDTHS = (8, 12, 16, 24, 32)
KINDS: dict[str, Callable[[int], Graph]] = {
    "vgg": lambda width: net.vgg((width, 2 * width, 2 * width)),
    "resnet": lambda width: net.resnet((2, 2), width),
    "transformer": lambda width: net.transformer(2, width, 2 * width),
}
MODELS = {f"{kind}{width}": prepare(make(width)) for kind, make in KINDS.items() for width in WIDTHS}


def index_of(models: Iterable[Prepared]) -> Index:
    index = Index(threads=1)
    for key, model in enumerate(models):
        index.add(key, model)
    return index


def drawn(models: Iterable[Prepared]) -> Landscape:
    found = survey(index_of(models).snapshot)
    assert found is not None
    return found


def same(one: Landscape, other: Landscape) -> bool:
    return (
        one.fingerprints == other.fingerprints
        and one.landmarks == other.landmarks
        and one.mark == other.mark
        and np.allclose(one.points, other.points, atol=1e-9)
        and np.array_equal(one.families, other.families)
    )


def test_neither_order_nor_number_nor_what_was_drawn_before_matters() -> None:
    """Law: it depends on which architectures there are alone."""
    models, rng = list(MODELS.values()), random.Random(1)
    whole = drawn(models)
    for _ in range(3):
        rng.shuffle(models)
        assert same(drawn([*models, *models[:4]]), whole)
    part = drawn(models[:7])
    later = survey(index_of(models).snapshot, part)
    assert later is not None
    assert same(later, whole)
    assert len(whole.fingerprints) == len(MODELS) == whole.total


def test_what_is_known_is_not_aligned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_of(MODELS.values())
    before = survey(index.snapshot)
    counted: list[int] = []

    def counting(scores: NDArray[np.int64], totals: NDArray[np.int64], total: int) -> NDArray[np.float64]:
        counted.append(len(scores))
        return mutual_distances(scores, totals, total)

    monkeypatch.setattr(landscape, "mutual_distances", counting)
    assert survey(index.snapshot, before) is not None
    assert counted == []
    index.add(1000, prepare(net.densenet()))
    assert survey(index.snapshot, before) is not None
    assert 0 < sum(counted) <= 2 * len(MODELS)  # the new one with every landmark, and as one with all


def test_distances_are_those_of_alignments() -> None:
    found, models = drawn(MODELS.values()), list(MODELS.values())
    exact = _distances(models, 1, threading.Event())
    for (i, one), (j, other) in itertools.product(enumerate(models), repeat=2):
        if other.fingerprint in found.landmarks:
            far = found.far[found.place(one.fingerprint), found.landmarks.index(other.fingerprint)]
            assert np.isclose(far, exact[i, j], atol=0.02)  # which of two is the child hardly matters
    assert found.stress < 0.2
    assert found.correlation > 0.8
    assert found.place("00" * 16) == -1


def test_those_that_are_alike_are_together_and_a_family() -> None:
    found = drawn(MODELS.values())
    points = {name: found.points[found.place(model.fingerprint)] for name, model in MODELS.items()}
    families = {name: int(found.families[found.place(model.fingerprint)]) for name, model in MODELS.items()}
    kinds = [[name for name in MODELS if name.startswith(kind)] for kind in KINDS]
    middles = np.array([np.mean([points[name] for name in names], axis=0) for names in kinds])
    for number, names in enumerate(kinds):
        assert len({families[name] for name in names}) == 1
        for name in names:
            assert apart(points[name][None], middles)[0].argmin() == number
    assert len(set(families.values())) == len(KINDS)


def test_a_part_of_the_plane() -> None:
    found = drawn(MODELS.values())
    (left, bottom), (right, top) = found.points.min(axis=0).tolist(), found.points.max(axis=0).tolist()
    assert found.within(left, bottom, right, top) == found.fingerprints
    assert found.within(right + 1, bottom, right + 2, top) == ()
    x, y = found.points[3]
    assert found.fingerprints[3] in found.within(x, y, x, y)


def test_empty_and_small_zoos() -> None:
    nothing = drawn([])
    assert (nothing.fingerprints, nothing.points.shape, nothing.stress) == ((), (0, 2), 0)
    models = list(MODELS.values())
    assert drawn(models[:1]).points.tolist() == [[0, 0]]
    two = drawn(models[:2])
    assert np.isclose(apart(two.points, two.points)[0, 1], two.far.max())


def test_many_architectures_have_fewer_landmarks_from_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landscape, "SAMPLE", 4)
    monkeypatch.setattr(landscape, "MOST", 12)
    monkeypatch.setattr(landscape, "LANDMARKS", 5)
    found = drawn(MODELS.values())
    assert (len(found.fingerprints), found.total) == (12, len(MODELS))
    assert list(found.fingerprints) == sorted(model.fingerprint for model in MODELS.values())[:12]
    assert 3 <= len(found.landmarks) <= 5
    assert found.correlation > 0.5


def test_it_stops_when_told_and_is_content_with_fewer_when_late() -> None:
    snapshot = index_of(MODELS.values()).snapshot
    assert survey(snapshot, stop=lambda: True) is None
    assert survey(snapshot, late=lambda: True) is None  # one landmark is no map
    turns = iter(range(100))
    few = survey(snapshot, late=lambda: next(turns) >= 4)
    assert few is not None
    assert len(few.landmarks) == 5
    whole = drawn(MODELS.values())
    assert few.landmarks == whole.landmarks[:5]
