"""Programs of Keras models compute what the models compute, at any batch size and on any backend."""

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, tree

from modelkeeper.errors import InvalidProgram, NoProgram
from modelkeeper.frontends.keras.describe import study
from modelkeeper.frontends.keras.numbers import to_numpy
from modelkeeper.frontends.keras.read_load import read
from modelkeeper.frontends.keras.record_program import arranged, record, record_program
from modelkeeper.frontends.keras.run_program import ENGINE
from modelkeeper.frontends.programs.passes import Pass, check_run
from modelkeeper.frontends.programs.program import LENGTH, Hole, Program
from modelkeeper.weights import Array
from tests.helpers.keras_models import MODELS, randomise

WITHOUT = {"variational": "randn", "masked": "mask"}  # models, and why they have no program
ROUGH = {"mixed_precision": 0.05}  # what half precision computes, single precision computes better
SLOW = keras.backend.backend() == "jax"  # it compiles every operation: a few models have to do
CHOSEN = ["same_strided", "lstm", "variational"] if SLOW else list(MODELS)


def filled(leaf: Any, examples: int = 5) -> Any:
    random = np.random.default_rng(0)
    if not hasattr(leaf, "shape"):
        return leaf
    shape = (examples, *leaf.shape[1:])
    if "float" in leaf.dtype:
        return random.normal(size=shape).astype("float32")
    return random.integers(0, 4, shape).astype(leaf.dtype)


def run(program: Program, model: Any, given: list[Array]) -> list[Array]:
    one = Pass(ENGINE, program, dict(read(model)), given, set(program.outputs))
    one.to(len(program.steps))
    return [one.value(number) for number in program.outputs]


@pytest.mark.parametrize("name", CHOSEN)
def test_a_program_computes_what_the_model_computes(name: str) -> None:
    keras.utils.set_random_seed(0)
    model = randomise(MODELS[name]())
    if name in WITHOUT:
        with pytest.raises(NoProgram, match=WITHOUT[name]):
            record_program(model)
        return
    studied, recorded = study(model), record(model)
    program = Program.from_bytes(recorded.program.to_bytes())
    ran_on = studied.trace.ran_on
    args, kwargs = tree.map_structure(filled, (ran_on.args, dict(ran_on.kwargs)))
    given = arranged(tree.flatten((args, kwargs)), program, recorded.input_orders)
    assert given is not None
    check_run(ENGINE, program, dict(read(model)), given)
    wanted = [to_numpy(tensor) for tensor in tree.flatten(model(*args, **kwargs, training=False))]
    made = run(program, model, given)
    for output, order, array in zip(made, studied.output_orders, wanted, strict=True):
        scale = np.abs(array.astype("float32")).max()
        np.testing.assert_allclose(output, array.transpose(order), atol=ROUGH.get(name, 1e-5) * scale)


def test_sequences_of_any_length_have_one_program() -> None:
    model = keras.Sequential(
        [keras.Input((None, 4)), layers.Conv1D(5, 3, name="a"), layers.Dense(2, name="b")]
    )
    recorded = record(model)
    assert recorded.program.inputs[0].shape[0] == Hole(b=1)
    assert LENGTH in recorded.program.inputs[0].shape
    for length in (9, 13):
        x = np.random.default_rng(0).normal(size=(3, length, 4)).astype("float32")
        given = arranged([x], recorded.program, recorded.input_orders)
        assert given is not None
        wanted = to_numpy(model(x))
        found = run(recorded.program, model, given)[0]
        np.testing.assert_allclose(found.reshape(wanted.shape), wanted, atol=1e-5)


def test_what_would_take_too_much_is_refused_before_it_runs() -> None:
    program = record_program(MODELS["built_later"]())
    steps = program.steps
    huge = type(steps[0])("expand.default", (Hole(v=0), (2**30, 1, 7)), 1)
    large = Program(program.inputs, (), (), (huge,), (0,), {})
    with pytest.raises(InvalidProgram, match="too large"):
        check_run(ENGINE, large, {}, [np.zeros((1, 7), "float32")])


def test_a_step_that_fails_is_the_programs_fault() -> None:
    model = MODELS["built_later"]()
    program = record_program(model)
    with pytest.raises(InvalidProgram, match="step 0"):
        check_run(ENGINE, program, dict(read(model)), [np.zeros((2, 9), "float32")])
