"""A search returns what a full scan would: with a filter, within a budget, each architecture aligned once."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.errors import InvalidSetting
from modelkeeper.graph import Graph
from modelkeeper.matching import Index, align, prepare
from tests.helpers import generated as net
from tests.helpers.scans import filled, full_scan, zoos


@given(zoos, net.networks, st.integers(1, 4), st.sampled_from([0.0, 0.3, 0.7]))
def test_a_search_equals_a_full_scan(graphs: list[Graph], query: Graph, buckets: int, floor: float) -> None:
    zoo = {key: prepare(graph) for key, graph in enumerate(graphs)}
    child = prepare(query)
    result = filled(zoo).search(child, buckets=buckets, floor=floor)
    assert result.matches == full_scan(zoo, child, buckets, floor)
    assert result.proven
    assert result.considered == len(zoo)


@given(zoos, net.networks, st.sets(st.integers(0, 15)))
def test_a_filter_comes_before_everything_else(graphs: list[Graph], query: Graph, among: set[int]) -> None:
    zoo = {key: prepare(graph) for key, graph in enumerate(graphs)}
    child = prepare(query)
    result = filled(zoo).search(child, among=among)
    assert result.matches == full_scan({key: model for key, model in zoo.items() if key in among}, child)
    assert result.considered == len(among & set(zoo))
    mask = np.isin(np.arange(max(among, default=-1) + 1), list(among))  # it may end before the largest key
    masked = filled(zoo).search(child, among=mask)
    assert (masked.matches, masked.considered) == (result.matches, result.considered)


def test_a_mask_says_nothing_of_keys_below_zero() -> None:
    model = prepare(net.vgg((8, 8)))
    index = filled({-9: model, 0: model, 3: model})
    assert index.search(model, among=np.array([True, False])).keys.tolist() == [0]
    assert index.search(model, among=np.ones(4, np.bool_)).keys.tolist() == [0, 3]


@given(zoos, net.networks, st.integers(1, 8))
def test_a_budget_says_whether_the_answer_is_proven(graphs: list[Graph], query: Graph, budget: int) -> None:
    zoo = {key: prepare(graph) for key, graph in enumerate(graphs)}
    child = prepare(query)
    index = filled(zoo)
    if len(index) > 2:
        index.refresh_clusters(count=2, sample=8)
    result = index.search(child, budget=budget)
    exact = full_scan(zoo, child)
    if result.proven:
        assert result.matches == exact
    for match in result.matches:
        assert match.similarity == align(zoo[match.key], child).similarity


def test_one_architecture_is_aligned_once() -> None:
    graph, rng = net.resnet((1, 1)), random.Random(0)
    index = filled({key: prepare(net.shuffled(graph, rng)[0]) for key in range(20)})
    near, same = index.search(prepare(net.resnet((1, 1), 24))), index.search(prepare(graph))
    assert near.aligned == 1
    assert len(near.matches) == 20
    assert same.aligned == 0
    assert {match.similarity for match in same.matches} == {1.0}


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="at least 1"):
        Index().search(prepare(net.vgg()), buckets=0)
    empty = Index().search(prepare(net.vgg()))
    assert empty.matches == ()
    assert empty.proven
    assert np.array_equal(Index().snapshot.keys, np.empty(0, np.int64))
