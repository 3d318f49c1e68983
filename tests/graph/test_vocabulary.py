"""The vocabulary: every entry is complete, and every trait is there for somebody."""

import pytest
import torch

from modelkeeper.frontends.programs.names import NAMES
from modelkeeper.graph.vocabulary import (
    APPLIED,
    CURVES,
    KIND_TRAITS,
    KINDS,
    LAYERS,
    MERGES,
    MISFITS,
    OPAQUE,
    OPERATIONS,
    REASONS,
    TRAITS,
    Pin,
    operation,
    read_step,
)
from modelkeeper.tracing.degrees import DEGREES
from modelkeeper.tracing.rules import RULES


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_says_all_that_others_ask(name: str) -> None:
    """What it does to axes, to degrees and on an edge: a rule for each that is there, and known traits."""
    entry = OPERATIONS[name]
    assert entry.axes in RULES, f"{name}: no rule for axes is called {entry.axes!r}"
    assert entry.degrees in DEGREES, f"{name}: no rule for degrees is called {entry.degrees!r}"
    assert entry.traits <= TRAITS.keys(), f"{name}: unknown traits {set(entry.traits - TRAITS.keys())}"
    assert entry.arguments, f"{name}: which arguments does it take?"


def test_no_rule_and_no_trait_is_there_for_nothing() -> None:
    entries = OPERATIONS.values()
    assert set(RULES) == {entry.axes for entry in entries}
    assert set(DEGREES) == {entry.degrees for entry in entries}
    assert set(TRAITS) == {trait for entry in entries for trait in entry.traits}
    assert set(KIND_TRAITS) == {trait for kind in KINDS.values() for trait in kind.traits}
    assert MISFITS < OPAQUE < REASONS.keys()


def test_the_tables_beside_name_what_there_is() -> None:
    assert {*LAYERS, *MERGES, *APPLIED, *CURVES} <= OPERATIONS.keys()
    assert {*LAYERS.values(), *MERGES.values(), *APPLIED.values()} <= KINDS.keys()
    assert set(NAMES.values()) <= OPERATIONS.keys()
    assert not set(NAMES) & OPERATIONS.keys(), "a name of ATen's is translated, or is in the vocabulary"


@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() - {"write", "fake_quantize", "weight_norm"}))
def test_arguments_are_those_of_the_operator_and_in_its_order(name: str) -> None:
    """The table is what counts at run time; here it is held against the framework that the names are from."""
    packet = getattr(torch.ops.aten, name, None) or getattr(torch.ops.aten, f"{name}_")
    schemas = [getattr(packet, overload)._schema for overload in packet.overloads()]
    orders = [[argument.name for argument in schema.arguments] for schema in schemas]
    listed = OPERATIONS[name].arguments
    assert set(listed) <= {argument for order in orders for argument in order}
    assert any(
        [argument for argument in order if argument in listed] == [a for a in listed if a in order]
        for order in orders
    )


@pytest.mark.parametrize(
    ("text", "traits"),
    [
        ("relu", {"pointwise", "keeps_zero", "homogeneous", "rectifies"}),
        ("relu6", {"pointwise", "keeps_zero", "rectifies"}),
        ("hardtanh[-2,2]", {"pointwise", "keeps_zero"}),
        ("clamp_min[0]", {"pointwise", "rectifies_at_zero", "rectifies"}),
        ("clamp_min[1]", {"pointwise", "rectifies_at_zero"}),
        ("mul[0.5]", {"pointwise", "keeps_zero", "linear", "places", "linear_by_number", "places_by_number"}),
        ("mul(_,sigmoid)", {"pointwise", "keeps_zero", "linear_by_number", "places_by_number"}),
        ("mul(sigmoid,cos)", {"pointwise", "linear_by_number", "places_by_number"}),
        ("2/3", {"linear", "places"}),
        ("mean[-1,yes]", {"statistic", "reduces"}),
        ("mean", {"statistic"}),
        ("an_operation_of_tomorrow[1]", set()),
        ("…#0123456789abcdef", set()),
    ],
)
def test_what_is_written_on_an_edge_has_the_traits_of_its_operation(text: str, traits: set[str]) -> None:
    assert {trait for trait in TRAITS if read_step(text).has(trait)} == traits


@pytest.mark.parametrize(
    ("text", "keeps"),
    [
        ("mul(_,sigmoid)", True),
        ("mul(sigmoid,_)", True),
        ("mul(sigmoid,cos)", False),
        ("mul(softplus>tanh,_)", True),
        ("mul(add[3.0]>relu6,exp)", False),
        ("mul(mul(_,sigmoid),cos)", True),
        ("mul(mul(exp,sigmoid),cos)", False),
        ("mul(cos,max[-1,yes]>tanh)", False),
        ("div(_,abs>add[1])", True),
        ("div(exp,_)", False),
        ("add(_,tanh)", False),
        ("div[floor](_,cos)", True),
        ("div[floor](cos,_)", False),
        ("mul(" * 249 + "_", False),
        ("mul(" * 200 + "_" + ")" * 200, False),
    ],
)
def test_a_product_is_zero_at_zero_if_one_of_its_factors_is(text: str, keeps: bool) -> None:
    """Else a new branch that ends in zeros would add something, and the transfer were not exact."""
    assert read_step(text).has("keeps_zero") is keeps


@pytest.mark.parametrize(
    ("text", "halves"),
    [
        ("max_pool2d[3x3,2x2,1x1]", True),
        ("max_pool2d[2x2]", True),
        ("max_pool2d[3x3,1x1,1x1]", False),
        ("avg_pool1d[1]", False),
        ("max_pool2d_with_indices[2x2,2x2]", True),
        ("adaptive_avg_pool2d[1x1]", False),
        ("relu", False),
    ],
)
def test_poolings_that_leave_fewer_places_halve(text: str, halves: bool) -> None:
    assert read_step(text).halves is halves


def test_what_is_not_in_the_vocabulary_has_nothing_but_a_name() -> None:
    unknown = operation("an_operation_of_tomorrow")
    assert (unknown.axes, unknown.degrees, unknown.traits) == ("", "zero", frozenset())
    assert str(Pin("reason_of_tomorrow", "conv after a")) == "reason_of_tomorrow in conv after a"
