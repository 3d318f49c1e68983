"""Arguments: each operation has a form that passes, and what its kernel would not survive does not."""

import json
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.helpers.hostile_programs import OPERATIONS, sensible_program
from modelkeeper.frontends.programs.argument_checks import check_arguments
from modelkeeper.frontends.programs.passes import run
from modelkeeper.frontends.programs.program import Program
from modelkeeper.frontends.torch.run_program import ENGINE


@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_makes_sense_passes_and_runs(operation: str) -> None:
    """Of every operation on the list: what the fuzzer begins with is no straw man."""
    data = sensible_program(operation)
    assert json.loads(data)["steps"][0][0] == operation
    run(ENGINE, Program.from_bytes(data), {}, [torch.ones(4, 8)])


def t(*shape: int, dtype: str = "float32") -> Any:
    return np.zeros(shape, dtype)


LSTM = {
    "has_biases": True, "num_layers": 1, "dropout": 0.0, "train": False, "bidirectional": False,
    "batch_first": False,
}  # fmt: skip
STATE = t(1, 2, 4)
WEIGHTS = [t(16, 8), t(16, 4), t(16), t(16)]
GOOD: list[tuple[str, dict[str, Any]]] = [
    ("lstm.input", {"input": t(5, 2, 8), "hx": [STATE, STATE], "params": WEIGHTS, **LSTM}),
    (
        "lstm.input",  # one that puts out fewer numbers than it remembers
        {
            "input": t(5, 2, 8),
            "hx": [t(1, 2, 3), STATE],
            "params": [t(16, 8), t(16, 3), t(16), t(16), t(3, 4)],
            **LSTM,
        },
    ),
    (
        "gru.input",
        {
            "input": t(2, 5, 8),
            "hx": t(4, 2, 4),
            "params": [t(12, 8), t(12, 4)] * 2 + [t(12, 8), t(12, 4)] * 2,
            **LSTM,
            "has_biases": False,
            "num_layers": 2,
            "bidirectional": True,
            "batch_first": True,
        },
    ),
    (
        "scaled_dot_product_attention.default",
        {"query": t(2, 4, 5, 8), "key": t(2, 1, 6, 8), "value": t(2, 1, 6, 3), "attn_mask": t(5, 6)},
    ),
    (
        "scaled_dot_product_attention.default",
        {"query": t(2, 4, 5, 8), "key": t(2, 2, 6, 8), "value": t(2, 2, 6, 8), "enable_gqa": True},
    ),
    ("_weight_norm.default", {"v": t(6, 4, 3), "g": t(1, 4, 1), "dim": 1}),
    ("slice.Tensor", {"self": t(4, 4), "dim": 1, "start": 0, "end": 2**63 - 1, "step": 2}),
    ("reshape.default", {"self": t(4, 4), "shape": [-1, 2]}),
    ("stack.default", {"tensors": [t(4), t(4)], "dim": 1}),
    ("constant_pad_nd.default", {"self": t(4, 4), "pad": [-1, 2]}),
    ("upsample_nearest2d.vec", {"input": t(1, 2, 4, 4), "output_size": None, "scale_factors": [0.5, 2.0]}),
]
BAD: list[tuple[str, dict[str, Any], str]] = [
    ("lstm.input", GOOD[0][1] | {"params": [t(16, 8), t(16, 4), t(16), t(15)]}, "weights of shapes"),
    ("lstm.input", GOOD[0][1] | {"params": WEIGHTS[:3]}, "3 weights"),
    ("lstm.input", GOOD[0][1] | {"hx": [STATE]}, "1 states"),
    ("lstm.input", GOOD[0][1] | {"hx": [STATE, t(1, 3, 4)]}, "states"),
    ("lstm.input", GOOD[0][1] | {"input": t(0, 2, 8)}, "sequences"),
    ("lstm.input", GOOD[0][1] | {"num_layers": 2**30}, "layers"),
    ("lstm.input", GOOD[0][1] | {"num_layers": 0}, "num_layers"),
    ("lstm.input", GOOD[0][1] | {"bidirectional": 1}, "neither true nor false"),
    ("gru.input", GOOD[2][1] | {"hx": t(3, 2, 4)}, "states"),
    ("scaled_dot_product_attention.default", GOOD[3][1] | {"attn_mask": t(5, 7)}, "mask"),
    ("scaled_dot_product_attention.default", GOOD[3][1] | {"key": t(2, 1, 0, 8)}, "size 0"),
    ("scaled_dot_product_attention.default", GOOD[3][1] | {"key": t(3, 1, 6, 8)}, "batches"),
    ("scaled_dot_product_attention.default", GOOD[4][1] | {"key": t(2, 3, 6, 8)}, "heads"),
    ("_weight_norm.default", {"v": t(6, 4, 3), "g": t(6, 4, 1), "dim": 0}, "gain"),
    ("_fft_c2c.default", {"self": t(4, 4), "dim": [0], "normalization": 0, "forward": True}, "complex"),
    (
        "_fft_c2c.default",
        {"self": t(4, 4, dtype="complex64"), "dim": [0, -2], "normalization": 0, "forward": True},
        "twice",
    ),
    (
        "_fft_r2c.default",
        {"self": t(4, 4), "dim": [0], "normalization": 7, "onesided": True},
        "none that there is",
    ),
    ("group_norm.default", {"input": t(2, 4, 8), "num_groups": 0}, "num_groups"),
    ("group_norm.default", {"input": t(2, 4, 8), "num_groups": 3}, "groups"),
    ("layer_norm.default", {"input": t(2, 4, 8), "normalized_shape": [4]}, "of an input"),
    ("layer_norm.default", {"input": t(2, 8), "normalized_shape": [8], "weight": t(7)}, "weight"),
    ("batch_norm.default", {"input": t(2, 4), "weight": t(3)}, "weight"),
    ("embedding.default", {"weight": t(4, 4), "indices": t(3)}, "whole numbers"),
    ("prelu.default", {"self": t(2, 4), "weight": t(3)}, "slopes"),
    ("conv2d.default", {"input": t(1, 4, 8, 8), "weight": t(4, 4, 0, 3)}, "kernel"),
    ("conv2d.default", {"input": t(1, 4, 8, 8), "weight": t(4, 4, 3, 3), "stride": [0, 1]}, "stride"),
    ("conv2d.default", {"input": t(1, 4, 8, 8), "weight": t(4, 4, 3, 3), "padding": [-1, 1]}, "padding"),
    ("max_pool2d.default", {"self": t(1, 4, 8, 8), "kernel_size": [2**40, 1]}, "kernel_size"),
    ("unfold.default", {"self": t(4, 4), "dimension": 0, "size": 2, "step": 0}, "step"),
    ("softmax.int", {"self": t(4, 4), "dim": 2}, "axis"),
    ("transpose.int", {"self": t(4, 4), "dim0": 0, "dim1": 1.5}, "axis"),
    ("pixel_shuffle.default", {"self": t(1, 5, 2, 2), "upscale_factor": 2}, "parts"),
    (
        "upsample_nearest2d.vec",
        {"input": t(1, 2, 4, 4), "output_size": None, "scale_factors": [float("nan"), 1.0]},
        "scale_factors",
    ),
    ("reshape.default", {"self": t(4, 4), "shape": [2**40]}, "too large"),
]


@pytest.mark.parametrize(("operation", "given"), GOOD)
def test_what_models_do_is_taken(operation: str, given: dict[str, Any]) -> None:
    check_arguments(operation, given)


@pytest.mark.parametrize(("operation", "given", "why"), BAD)
def test_what_no_kernel_should_see_is_refused(operation: str, given: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_arguments(operation, given)
