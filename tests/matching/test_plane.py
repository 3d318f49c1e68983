"""Points from distances: what is planar is recovered, the same gives the same, and no step makes it worse."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from modelkeeper.matching.plane import (
    Floats,
    _classical,
    _turned,
    apart,
    laid_out,
    majorised,
    placed,
    rank_correlation,
    stress,
)

coordinates = st.floats(-1, 1, width=32).map(lambda value: round(value, 3))


def in_plane(least: int = 1, most: int = 12) -> st.SearchStrategy[Floats]:
    """Points of a plane."""
    return st.integers(least, most).flatmap(
        lambda count: arrays(np.float64, (count, 2), elements=coordinates)
    )


def dissimilarities(most: int = 10) -> st.SearchStrategy[Floats]:
    """Distances that no points need have."""

    def symmetric(table: Floats) -> Floats:
        table = (table + table.T) / 2
        np.fill_diagonal(table, 0)
        return table

    whole = st.floats(0, 1, width=32).map(lambda value: round(value, 3))
    square = st.integers(1, most).flatmap(lambda count: arrays(np.float64, (count, count), elements=whole))
    return square.map(symmetric)


@given(in_plane())
def test_distances_of_a_plane_are_recovered(points: Floats) -> None:
    """Law: distances that points of a plane have are those of the points that come out."""
    distances = apart(points, points)
    assert np.allclose(apart(*[laid_out(distances)] * 2), distances, atol=1e-5)


@given(in_plane(), in_plane())
def test_others_are_placed_beside_landmarks(landmarks: Floats, others: Floats) -> None:
    """Law: so do the others, from their distances to landmarks alone, if landmarks span the plane."""
    landmarks = np.concatenate([landmarks, [[0, 0], [1, 0], [0, 1]]])
    between = apart(landmarks, landmarks)
    ground = laid_out(between)
    found = placed(ground, between, apart(others, landmarks))
    assert np.allclose(apart(found, found), apart(others, others), atol=1e-4)
    assert np.allclose(apart(found, ground), apart(others, landmarks), atol=1e-4)


@given(dissimilarities())
def test_no_step_raises_the_stress_and_the_same_gives_the_same(distances: Floats) -> None:
    first = _classical(distances)

    def wrong(points: Floats) -> float:
        return float(((apart(points, points) - distances) ** 2).sum())

    one, many = majorised(first, distances, 1), majorised(first, distances)
    assert wrong(one) <= wrong(first) + 1e-9
    assert wrong(many) <= wrong(one) + 1e-9
    ground = laid_out(distances)
    assert np.isfinite(ground).all()
    assert np.array_equal(ground, laid_out(distances))
    twice = placed(ground, distances, np.concatenate([distances, distances]))
    assert np.allclose(twice[: len(distances)], twice[len(distances) :], atol=1e-9)


@given(in_plane(3), st.floats(0, 6.3), st.booleans())
def test_however_points_are_turned_they_come_out_alike(points: Floats, angle: float, mirror: bool) -> None:
    """Law: the orientation is canonical where the points are wider one way, and lean to one side."""
    points = points - points.mean(axis=0)
    widths = np.linalg.eigvalsh(points.T @ points)
    straight = _turned(points)
    leans = (straight**3).sum(axis=0) / np.maximum((np.abs(straight) ** 3).sum(axis=0), 1e-9)
    if widths[1] - widths[0] < 1e-2 or widths[0] < 1e-2 or np.abs(leans).min() < 1e-3:
        return
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    moved = (points * [1, -1] if mirror else points) @ turn
    assert np.allclose(_turned(moved), straight, atol=1e-6)
    assert (straight**2).sum(axis=0)[0] >= (straight**2).sum(axis=0)[1] - 1e-9


def test_nothing_and_one_and_all_the_same() -> None:
    assert laid_out(np.zeros((0, 0))).shape == (0, 2)
    assert placed(np.zeros((0, 2)), np.zeros((0, 0)), np.zeros((2, 0))).tolist() == [[0, 0], [0, 0]]
    assert laid_out(np.zeros((1, 1))).tolist() == [[0, 0]]
    assert np.abs(laid_out(np.zeros((4, 4)))).max() == 0
    assert np.allclose(apart(*[laid_out(np.array([[0, 0.5], [0.5, 0]]))] * 2)[0, 1], 0.5)


def test_how_far_a_picture_can_be_trusted() -> None:
    real = np.array([0.1, 0.2, 0.3, 0.4])
    assert stress(real, real) == 0
    assert stress(real, np.zeros(4)) == 1
    assert stress(np.zeros(2), np.zeros(2)) == 0
    assert np.isclose(rank_correlation(real, real**3), 1)
    assert np.isclose(rank_correlation(real, -real), -1)
    assert rank_correlation(np.array([0.1, 0.1]), np.array([0.2, 0.3])) == 1
    assert np.isclose(rank_correlation(np.array([1.0, 1, 2]), np.array([1.0, 2, 3])), np.sqrt(3) / 2)
