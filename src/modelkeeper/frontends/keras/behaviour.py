"""What does a Keras model compute? Run it on random numbers, compare two, re-estimate what norms have seen.

difference(first, second)        do two models compute the same?
recalibrate(model, batches)      statistics of batch norms from data, without a gradient step
"""

from typing import Any

import keras
import numpy as np
from keras import tree

from modelkeeper.errors import CannotDescribe
from modelkeeper.frontends.calibrating.batch_statistics import batch_statistics
from modelkeeper.frontends.keras.describe import study
from modelkeeper.frontends.keras.examples import batches_in, example_of, split
from modelkeeper.frontends.keras.inputs import Inputs, given_inputs
from modelkeeper.frontends.keras.numbers import to_numpy
from modelkeeper.frontends.keras.random_state import keep_random_state
from modelkeeper.frontends.keras.read_load import load, read
from modelkeeper.frontends.keras.record_program import arranged, record
from modelkeeper.frontends.keras.run_program import ENGINE
from modelkeeper.text import first_line
from modelkeeper.weights import Array

TOKENS = 8  # random tokens are drawn from the first few: every vocabulary has them


def run_on_random(model: Any, inputs: Inputs) -> Array:
    """All outputs of a model in one vector, on random numbers in the form of its inputs, as in use.

    Raises:
        CannotDescribe: It does not run on them.
    """
    random = np.random.default_rng(0)

    def fill(leaf: Any) -> Any:
        if not isinstance(leaf, keras.KerasTensor):
            return leaf
        if "float" in leaf.dtype:
            return random.normal(size=leaf.shape).astype(leaf.dtype)
        return random.integers(0, 2 if leaf.dtype == "bool" else TOKENS, leaf.shape).astype(leaf.dtype)

    args, kwargs = tree.map_structure(fill, (inputs.args, dict(inputs.kwargs)))
    with keep_random_state(seed=0):
        try:
            returned = model(*args, **kwargs, training=False)
        except Exception as problem:
            raise CannotDescribe(
                type(model).__name__, f"it did not run: {first_line(problem)}", "Pass example_inputs"
            ) from problem
    outputs = [to_numpy(tensor).astype(np.float64).reshape(-1) for tensor in tree.flatten(returned)]
    return np.concatenate(outputs)


def difference(first: Any, second: Any, example_inputs: Any = None) -> float:
    """By how much two models differ on random inputs, relative to how much their outputs vary.

    Infinite if their outputs have different shapes. Of several first ones, their mean is compared.
    """
    models = first if isinstance(first, list | tuple) else [first]
    inputs = (
        study(models[0]).trace.ran_on if example_inputs is None else given_inputs(models[0], example_inputs)
    )
    outputs, computed = [run_on_random(model, inputs) for model in models], run_on_random(second, inputs)
    if any(output.shape != computed.shape for output in outputs):
        return float("inf")
    expected = np.mean(outputs, 0)
    scale = float(np.abs(expected - expected.mean()).max())
    return float(np.abs(expected - computed).max()) / (scale or 1.0)


def recalibrate(model: Any, batches: Any) -> int:
    """Estimate the moving statistics of all batch norms anew, as averages over these batches.

    After an inexact transfer the statistics belong to other activations. Nothing but they is changed.

    Args:
        model: Any Keras model.
        batches: What the model takes: see `examples`. Labels are not looked at.

    Returns:
        The number of norms that were re-estimated.

    Raises:
        NoProgram: The model cannot be taken apart layer by layer. It is as it was, as after any other error.
    """
    structures = [split(batch)[0] for batch in batches_in(batches)]
    if not structures:
        raise ValueError("recalibrate needs at least one batch; nothing was changed")
    recorded = record(model, example_of(model, structures[0]))
    given = [arranged(tree.flatten(inputs), recorded.program, recorded.input_orders) for inputs in structures]
    tensors = {name: np.array(array) for name, array in read(model)}
    found = batch_statistics(ENGINE, recorded.program, tensors, [arrays for arrays in given if arrays])
    load(model, found)
    return len(found) // 2
