"""A trace that a front end writes with the builder: numbers, dtypes, what is active, what is left out."""

import numpy as np

from modelkeeper.tracing.builder import TraceBuilder
from modelkeeper.tracing.describe import describe
from modelkeeper.tracing.trace import OwnedTensor

WEIGHT = OwnedTensor(("layer.weight",), (4, 3), "float32")


def test_a_tensor_is_one_value_however_often_it_is_asked_for() -> None:
    build = TraceBuilder("made")
    assert build.tensor(WEIGHT) is build.tensor(WEIGHT)
    assert build.tensor(WEIGHT).owner is WEIGHT


def test_values_are_active_if_they_come_from_an_input() -> None:
    build = TraceBuilder("made")
    weight, given = build.tensor(WEIGHT), build.input((2, 3))
    doubled = build.step("mul", weight.shape, self=weight, other=2.0)
    made = build.step("linear", (2, 4), input=given, weight=doubled, bias=None)
    assert (doubled.active, made.active) == (False, True)
    assert made.step is not None
    assert made.step.inputs == [given, doubled]
    assert "bias" not in made.step.arguments
    assert [step.name for step in build.trace([made]).steps] == ["mul", "linear"]


def test_what_no_output_needs_is_left_out() -> None:
    build = TraceBuilder("made")
    given = build.input((2, 3))
    kept = build.step("relu", (2, 3), self=given)
    build.step("tanh", (2, 3), self=given)
    assert [step.name for step in build.trace([kept]).steps] == ["relu"]


def test_values_in_lists_are_inputs_and_a_step_may_have_several_results() -> None:
    build = TraceBuilder("made")
    a, b = build.input((2, 3)), build.input((2, 5), name="other")
    joined = build.step("cat", (2, 8), tensors=[a, b], dim=1)
    left, right = build.results("split_with_sizes", [(2, 3), (2, 5)], self=joined, split_sizes=[3, 5], dim=1)
    assert joined.step is not None
    assert joined.step.inputs == [a, b]
    assert left.step is right.step
    trace = build.trace([left, right])
    assert trace.input_names == ["input", "other"]
    kinds = [layer.kind for layer in describe(trace).layers]
    assert kinds == [
        "input",
        "input",
        "concat",
        "output",
        "output",
    ]


def test_views_and_permutations_that_change_nothing_are_no_steps() -> None:
    build = TraceBuilder("made")
    given = build.input((2, 3, 4))
    assert build.view(given, (2, 3, 4)) is given
    assert build.permute(given, (0, 1, 2)) is given
    assert build.permute(given, (0, 2, 1)).shape == (2, 4, 3)
    assert build.view(given, (2, 12)).shape == (2, 12)
    assert len(build.steps) == 2


def test_constants_keep_their_numbers_and_say_which_axes_repeat() -> None:
    build = TraceBuilder("made")
    value = build.constant(np.broadcast_to(np.arange(3.0), (5, 3)))
    assert (value.constant, value.dtype, value.repeats) == (True, "float64", (True, False))
    assert build.constants[value.number].shape == (5, 3)


def test_results_have_the_kind_of_numbers_that_goes_in_or_that_is_said() -> None:
    build = TraceBuilder("made")
    words, table = build.input((2, 7), "int64"), build.tensor(OwnedTensor(("table",), (9, 4), "bfloat16"))
    read = build.step("embedding", (2, 7, 4), weight=table, indices=words)
    assert read.dtype == "bfloat16"
    assert build.step("gt", read.shape, dtype="bool", self=read, other=0).dtype == "bool"
