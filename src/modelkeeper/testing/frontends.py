"""Does a front end keep its promises? A suite of tests that every front end runs.

    from modelkeeper.testing import FrontendTests

    class TestKeras(FrontendTests):
        frontend = FRONTEND
        input_shape = (2, 6)

        def make(self, width: int, seed: int) -> keras.Model: ...

pytest then collects all tests below for the subclass. A model that `make` gives has at least two layers with
weights, takes one input of `input_shape`, and has `width` units between its layers; its weights are drawn by
`seed`. What a front end cannot do (`runner` or `trials` is None) is tested to be refused with a clear error.
"""

import random
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

from modelkeeper.errors import CannotCalibrate, CannotProbe, InvalidSetting, InvalidWeights
from modelkeeper.frontends import Frontend, describe, frontend_for, register, unregister
from modelkeeper.frontends.abilities import layouts_of
from modelkeeper.graph import Graph, from_json, to_json
from modelkeeper.layouts import Laid
from modelkeeper.warmstart.transfer import transfer
from modelkeeper.weights import Array

NARROW, WIDE = 6, 9
CLOSE = 1e-4  # a relative difference of outputs that rounding explains


class FrontendTests:
    """What `modelkeeper.frontends.protocol` promises, as tests. Subclass it with a front end and models."""

    frontend: ClassVar[Frontend]
    input_shape: ClassVar[tuple[int, ...]]
    input_dtype: ClassVar[str] = "float32"

    def make(self, width: int, seed: int) -> Any:
        """A model with so many units between its layers, and weights that are drawn by a seed."""
        raise NotImplementedError

    def outputs(self, model: Any) -> Array | None:
        """What the model computes on one fixed input; None: it is left to the front end's runner, if any."""
        return None

    @pytest.fixture(autouse=True)
    def registered(self) -> Iterator[None]:
        """The front end is found, whether or not its package is installed."""
        register(self.frontend)
        yield
        unregister(self.frontend.name)

    # -- which models ---------------------------------------------------------------------------

    def test_it_takes_its_models_and_nothing_else(self) -> None:
        model = self.make(NARROW, 0)
        assert self.frontend.takes(model)
        assert frontend_for(model) is self.frontend
        for thing in (None, 1, "model", {}, [], object(), type(model)):
            assert not self.frontend.takes(thing)

    # -- describe -------------------------------------------------------------------------------

    def test_a_described_model_is_a_valid_graph_of_its_framework(self) -> None:
        graph = self._describe(self.make(NARROW, 0))
        assert graph.framework == self.frontend.name
        assert graph.parameters > 0
        assert from_json(to_json(graph)) == graph  # reading checks every rule
        assert sum(any(not t.buffer for t in layer.tensors) for layer in graph.layers) >= 2
        assert any(space.free for space in graph.spaces), "no space of the model can change its width"

    def test_the_same_architecture_gives_the_same_graph(self) -> None:
        model = self.make(NARROW, 0)
        assert to_json(self._describe(model)) == to_json(self._describe(model))
        assert self._describe(self.make(NARROW, 1)).fingerprint == self._describe(model).fingerprint
        assert self._describe(self.make(WIDE, 0)).fingerprint != self._describe(model).fingerprint

    def test_describing_and_reading_leave_no_trace(self) -> None:
        model = self.make(NARROW, 0)
        before, drawn = self._read(model), _generators()
        self._describe(model)
        list(self.frontend.read(model))
        assert _same(self._read(model), before)
        assert _generators() == drawn

    def test_an_example_has_a_shape_and_a_dtype(self) -> None:
        example = self.frontend.example(self.input_shape, self.input_dtype)
        assert tuple(example.shape) == self.input_shape
        assert self.input_dtype in str(example.dtype)

    # -- read and load --------------------------------------------------------------------------

    def test_reading_gives_every_stored_tensor_once_as_the_graph_says(self) -> None:
        model = self.make(NARROW, 0)
        stored = {t.name: (t.shape, t.dtype) for t in self._describe(model).tensors.values() if t.stored}
        read = list(self.frontend.read(model))
        assert len({name for name, _ in read}) == len(read)
        assert {name: (array.shape, array.dtype.name) for name, array in read} == stored

    def test_loading_gives_the_model_just_these_weights(self) -> None:
        model, weights = self.make(NARROW, 0), self._read(self.make(NARROW, 1))
        before = self._read(model)
        loaded = self.frontend.load(model, weights)
        assert _same(self._read(loaded), weights)
        assert loaded is model or _same(self._read(model), before)
        for array in weights.values():
            array[...] = 0
        assert not _same(self._read(loaded), weights), "the model holds on to the arrays that it was given"

    def test_what_is_not_named_is_left_alone(self) -> None:
        model, other = self.make(NARROW, 0), self._read(self.make(NARROW, 1))
        before = self._read(model)
        name = next(name for name in other if not np.array_equal(other[name], before[name]))
        assert _same(self._read(self.frontend.load(model, {name: other[name]})), before | {name: other[name]})

    @pytest.mark.parametrize("fault", ["an unknown name", "a wrong shape", "one axis more"])
    def test_what_does_not_fit_is_refused_and_changes_nothing(self, fault: str) -> None:
        model, weights = self.make(NARROW, 0), self._read(self.make(NARROW, 1))
        before, last = self._read(model), list(weights)[-1]
        if fault == "an unknown name":
            weights["no.such tensor"] = weights[last]
        else:
            array = weights[last]
            weights[last] = array[None] if fault == "one axis more" else np.concatenate([array, array])
        with pytest.raises(InvalidWeights):
            self.frontend.load(model, weights)
        assert _same(self._read(model), before)

    # -- transfer -------------------------------------------------------------------------------

    def test_the_same_architecture_gets_the_same_weights(self) -> None:
        source, target = self.make(NARROW, 0), self.make(NARROW, 1)
        report = transfer(source, target, self._inputs())
        assert report.exact, report.plan.doubts
        assert (report.missing_keys, report.unexpected_keys) == ([], [])
        assert abs(report.similarity - 1) < CLOSE
        assert _same(self._read(report.model), self._read(source))
        self._compare(source, report.model)

    def test_a_wider_model_computes_the_same(self) -> None:
        source, target = self.make(NARROW, 0), self.make(WIDE, 1)
        before = self._read(source)
        report = transfer(source, target, self._inputs())
        assert report.exact, report.plan.doubts
        assert _same(self._read(source), before)
        self._compare(source, report.model)

    # -- what only some can ---------------------------------------------------------------------

    def test_layouts_say_how_tensors_are_stored(self) -> None:
        model, source = self.make(NARROW, 0), self.make(NARROW, 1)
        tensors, wanted = self._describe(model).tensors, self._read(source)
        layouts = layouts_of(self.frontend, model)
        assert layouts.keys() <= wanted.keys()
        assert all(layout.last == tensors[name].shape for name, layout in layouts.items())
        laid = {
            name: Laid(np.array(layout.stored(wanted[name], layout.first), order="C"), layout)
            for name, layout in layouts.items()
        }
        assert _same(self._read(self.frontend.load(model, wanted | laid)), wanted)

    def test_a_runner_records_programs_and_compares_models(self) -> None:
        runner, model = self.frontend.runner, self.make(NARROW, 0)
        if runner is None:
            with pytest.raises(CannotCalibrate, match=self.frontend.name):
                transfer(model, self.make(NARROW, 1), self._inputs(), calibrate=[])
            with pytest.raises(InvalidSetting, match="verify"):
                transfer(model, self.make(NARROW, 1), self._inputs(), verify=True)
            return
        other = self.make(NARROW, 1)
        before, drawn = self._read(model), _generators()
        program = runner.record_program(model, self._inputs()).to_bytes()
        assert runner.read_program(program).to_bytes() == program
        assert runner.difference(model, model, self._inputs()) == 0
        assert runner.difference(model, other, self._inputs()) > CLOSE
        with pytest.raises(CannotCalibrate):
            runner.collect([], None, 8)
        assert _same(self._read(model), before)
        assert _generators() == drawn

    def test_trials_copy_a_model_and_leave_it_alone(self) -> None:
        trials, model = self.frontend.trials, self.make(NARROW, 0)
        if trials is None:
            with pytest.raises(CannotProbe, match=self.frontend.name):
                transfer(model, self.make(NARROW, 1), self._inputs(), probe=[])
            return
        other = self._read(self.make(NARROW, 1))
        before, drawn = self._read(model), _generators()
        copy = trials.duplicate(model)
        assert _same(self._read(copy), before)
        self.frontend.load(copy, other)
        with pytest.raises(CannotProbe):
            trials.labelled([], 8)
        assert _same(self._read(model), before)
        assert _generators() == drawn

    # -- helpers --------------------------------------------------------------------------------

    def _inputs(self) -> Any:
        return (self.frontend.example(self.input_shape, self.input_dtype),)

    def _describe(self, model: Any) -> Graph:
        return describe(self.frontend, model, self._inputs())

    def _read(self, model: Any) -> dict[str, Array]:
        return {name: array.copy() for name, array in self.frontend.read(model)}

    def _compare(self, first: Any, second: Any) -> None:
        """Both compute the same, as far as somebody can run them."""
        expected, found = self.outputs(first), self.outputs(second)
        if expected is not None and found is not None:
            np.testing.assert_allclose(found, expected, rtol=CLOSE, atol=CLOSE * np.abs(expected).max())
        elif self.frontend.runner is not None:
            assert self.frontend.runner.difference(first, second, self._inputs()) < CLOSE


def _same(weights: dict[str, Array], others: dict[str, Array]) -> bool:
    return weights.keys() == others.keys() and all(
        array.dtype == others[name].dtype and array.tobytes() == others[name].tobytes()
        for name, array in weights.items()
    )


def _generators() -> tuple[Any, ...]:
    """The state of the generators that everybody uses, to be compared."""
    kind, keys, *rest = np.random.get_state(legacy=True)
    return random.getstate(), kind, np.asarray(keys).tobytes(), *rest
