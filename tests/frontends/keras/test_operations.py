"""Operations carried out by Keras give what ATen gives: the same cases on each backend.

What ATen gave is kept in golden/operations.npz, so that environments without PyTorch can compare; where it is
installed, the file is compared with ATen itself.
"""

import importlib.util
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from modelkeeper.errors import InvalidProgram
from modelkeeper.frontends.keras.operations import FUNCTIONS
from modelkeeper.frontends.keras.run_program import ENGINE
from modelkeeper.weights import Array

GOLDEN = Path(__file__).parent / "golden" / "operations.npz"
RANDOM = np.random.default_rng(0)


def drawn(*shape: int) -> Array:
    return RANDOM.normal(size=shape).astype(np.float32)


def whole(most: int, *shape: int) -> Array:
    return RANDOM.integers(0, most, shape).astype(np.int32)


X, Y, MAPS = drawn(2, 3, 4), drawn(2, 3, 4), drawn(2, 4, 7, 6)
POSITIVE = np.abs(X) + 0.1
MASK = X > 0
ROW, LINE, VOLUME = drawn(4), drawn(2, 4, 9), drawn(2, 2, 5, 4, 3)
POOL: dict[str, Any] = {"self": MAPS, "kernel_size": [3, 2], "stride": [2, 2]}
STATISTICS = {"running_mean": drawn(4), "running_var": np.abs(drawn(4)) + 0.5}
AFFINE = {"weight": drawn(4), "bias": drawn(4)}
GATES = {"has_biases": True, "num_layers": 2, "dropout": 0.0, "train": False, "batch_first": True}


def weights_of(
    gates: int, *, directions: int, layers: int = 2, units: int = 3, taken: int = 4
) -> list[Array]:
    made = []
    for layer in range(layers):
        for _ in range(directions):
            width = taken if layer == 0 else units * directions
            made += [drawn(gates * units, width), drawn(gates * units, units)]
            made += [drawn(gates * units), drawn(gates * units)]
    return made


STATES = [drawn(4, 2, 3), drawn(4, 2, 3)]
POINTWISE = """neg abs sign exp expm1 sin cos tan atan tanh sigmoid log_sigmoid erf floor ceil round trunc
    isnan isinf relu relu6 selu silu mish hardswish hardsigmoid zero square""".split()
CASES: list[tuple[str, dict[str, Any]]] = [
    *((f"{name}.default", {"self": 3 * X}) for name in POINTWISE),
    *((f"{name}.default", {"self": POSITIVE}) for name in "log log1p log2 sqrt rsqrt reciprocal".split()),
    *((f"{name}.Tensor", {"self": X, "other": Y}) for name in "mul div remainder eq ne lt le gt ge".split()),
    *((f"{name}.Scalar", {"self": X, "other": 0.5}) for name in "mul div remainder lt ge".split()),
    *((f"{name}.Tensor", {"self": X, "other": Y, "alpha": 2}) for name in ("add", "sub", "rsub")),
    *((f"{name}.Scalar", {"self": X, "other": 3}) for name in ("add", "sub", "rsub")),
    *((f"{name}.default", {"self": X, "other": Y}) for name in ("maximum", "minimum")),
    *((f"logical_{name}.default", {"self": MASK, "other": Y > 0}) for name in ("and", "or", "xor")),
    ("logical_not.default", {"self": MASK}),
    ("bitwise_and.Tensor", {"self": MASK, "other": Y > 0}),
    ("div.Scalar_mode", {"self": whole(50, 4), "other": 7, "rounding_mode": "floor"}),
    ("div.Tensor_mode", {"self": X, "other": Y, "rounding_mode": "trunc"}),
    ("pow.Tensor_Scalar", {"self": POSITIVE, "exponent": 1.5}),
    ("pow.Scalar", {"self": 2, "exponent": X}),
    ("clamp.default", {"self": X, "min": -0.5, "max": 0.5}),
    ("clamp_min.default", {"self": X, "min": 0.1}),
    ("addcmul.default", {"self": X, "tensor1": Y, "tensor2": X, "value": 0.5}),
    ("addcdiv.default", {"self": X, "tensor1": Y, "tensor2": POSITIVE, "value": 2}),
    ("lerp.Scalar", {"self": X, "end": Y, "weight": 0.3}),
    ("where.self", {"condition": MASK, "self": X, "other": Y}),
    ("masked_fill.Scalar", {"self": X, "mask": MASK, "value": -float("inf")}),
    ("_to_copy.default", {"self": X, "dtype": "int32"}),
    ("nan_to_num.default", {"self": np.where(MASK, np.nan, X), "nan": 2.0}),
    ("leaky_relu.default", {"self": X, "negative_slope": 0.2}),
    ("elu.default", {"self": X, "alpha": 0.7}),
    ("celu.default", {"self": X, "alpha": 0.7}),
    ("gelu.default", {"self": X}),
    ("gelu.default", {"self": X, "approximate": "tanh"}),
    ("softplus.default", {"self": 30 * X, "beta": 2.0}),
    ("hardtanh.default", {"self": X, "min_val": -0.3, "max_val": 0.6}),
    ("hardshrink.default", {"self": X, "lambd": 0.4}),
    ("softshrink.default", {"self": X, "lambd": 0.4}),
    ("threshold.default", {"self": X, "threshold": 0.2, "value": -1.0}),
    ("zeros.default", {"size": [2, 3]}),
    ("full.default", {"size": [2], "fill_value": 1.5}),
    ("eye.m", {"n": 2, "m": 3}),
    ("arange.start_step", {"start": 1, "end": 9, "step": 3}),
    ("linspace.default", {"start": 0.0, "end": 1.0, "steps": 5}),
    ("full_like.default", {"self": X, "fill_value": 2.0}),
    ("new_zeros.default", {"self": X, "size": [3]}),
    # along axes
    *((f"{name}.int", {"self": X, "dim": -2}) for name in ("softmax", "log_softmax")),
    ("cumsum.default", {"self": X, "dim": 1}),
    ("sum.default", {"self": X}),
    ("sum.dim_IntList", {"self": X, "dim": [-1, 0]}),
    ("mean.dim", {"self": X, "dim": [1], "keepdim": True}),
    ("prod.dim_int", {"self": X, "dim": 1}),
    ("amax.default", {"self": X, "dim": [0, 2]}),
    ("amin.default", {"self": X}),
    ("max.dim", {"self": X, "dim": 1}),
    ("min.dim", {"self": X, "dim": -1, "keepdim": True}),
    ("argmax.default", {"self": X, "dim": 2}),
    ("any.dim", {"self": MASK, "dim": 1}),
    ("all.default", {"self": MASK}),
    ("var.correction", {"self": X, "dim": [1, 2]}),
    ("std.correction", {"self": X, "dim": [-1], "correction": 0, "keepdim": True}),
    ("var_mean.correction", {"self": X, "dim": [1]}),
    ("logsumexp.default", {"self": X, "dim": [1]}),
    ("linalg_vector_norm.default", {"self": X, "dim": [1], "keepdim": True}),
    ("linalg_vector_norm.default", {"self": X, "ord": 3.0}),
    ("topk.default", {"self": X, "k": 2, "dim": 1}),
    ("topk.default", {"self": X, "k": 2, "largest": False}),
    ("sort.default", {"self": X, "dim": 1, "descending": True}),
    ("glu.default", {"self": X}),
    ("_weight_norm.default", {"v": X, "g": drawn(2, 1, 1)}),
    # shape
    ("reshape.default", {"self": X, "shape": [2, -1]}),
    ("permute.default", {"self": X, "dims": [2, 0, -2]}),
    ("transpose.int", {"self": X, "dim0": 0, "dim1": -1}),
    ("t.default", {"self": X[0]}),
    ("unsqueeze.default", {"self": X, "dim": -2}),
    ("squeeze.dim", {"self": X[:1], "dim": 0}),
    ("squeeze.default", {"self": X[:1, :, :1]}),
    ("expand.default", {"self": X[:1], "size": [5, -1, 4]}),
    ("expand.default", {"self": ROW, "size": [2, 4]}),
    ("repeat.default", {"self": X, "repeats": [2, 1, 1, 3]}),
    ("repeat_interleave.self_int", {"self": X, "repeats": 2, "dim": 1}),
    ("flatten.using_ints", {"self": MAPS, "start_dim": 1, "end_dim": 2}),
    ("unflatten.int", {"self": MAPS, "dim": 1, "sizes": [2, -1]}),
    ("cat.default", {"tensors": [X, Y], "dim": -1}),
    ("stack.default", {"tensors": [X, Y], "dim": 1}),
    ("split.Tensor", {"self": MAPS, "split_size": 3, "dim": 2}),
    ("split_with_sizes.default", {"self": MAPS, "split_sizes": [1, 6], "dim": 2}),
    ("chunk.default", {"self": MAPS, "chunks": 3, "dim": 2}),
    ("unbind.int", {"self": X, "dim": 1}),
    ("slice.Tensor", {"self": MAPS, "dim": 2, "start": 1, "end": -1, "step": 2}),
    ("slice.Tensor", {"self": MAPS, "dim": 1, "start": -2, "end": 9223372036854775807}),
    ("select.int", {"self": X, "dim": 1, "index": -1}),
    ("narrow.default", {"self": MAPS, "dim": 3, "start": 1, "length": 3}),
    ("index_select.default", {"self": X, "dim": 1, "index": np.array([2, 0])}),
    ("gather.default", {"self": X, "dim": 1, "index": whole(3, 2, 2, 3).astype(np.int64)}),
    ("index.Tensor", {"self": X, "indices": [None, np.array([2, 0, -1])]}),
    ("index.Tensor", {"self": X, "indices": [None, np.array([[2], [0]]), np.array([1, 3, 0])]}),
    ("flip.default", {"self": X, "dims": [0, -1]}),
    ("roll.default", {"self": X, "shifts": [1, -1], "dims": [0, 2]}),
    ("movedim.int", {"self": X, "source": 0, "destination": 2}),
    ("constant_pad_nd.default", {"self": MAPS, "pad": [1, 2, -1, 3], "value": 0.5}),
    ("pad.default", {"self": MAPS, "pad": [1, 2, 2, 1], "mode": "reflect"}),
    ("pad.default", {"self": MAPS, "pad": [1, 2, 2, 1], "mode": "circular"}),
    ("replication_pad2d.default", {"self": MAPS, "padding": [1, 2, 2, 1]}),
    ("tril.default", {"self": X, "diagonal": 1}),
    ("triu.default", {"self": X}),
    ("channel_shuffle.default", {"self": MAPS, "groups": 2}),
    ("pixel_shuffle.default", {"self": MAPS, "upscale_factor": 2}),
    ("pixel_unshuffle.default", {"self": MAPS[:, :, :6], "downscale_factor": 2}),
    ("unfold.default", {"self": MAPS, "dimension": 2, "size": 3, "step": 2}),
    # windows
    ("conv1d.default", {"input": LINE, "weight": drawn(6, 4, 3), "bias": drawn(6), "padding": [1]}),
    ("conv1d.padding", {"input": LINE, "weight": drawn(6, 2, 3), "padding": "same", "groups": 2}),
    ("conv2d.default", {"input": MAPS, "weight": drawn(6, 4, 3, 2), "stride": [2, 1], "padding": [1, 0]}),
    ("conv2d.default", {"input": MAPS, "weight": drawn(6, 2, 3, 3), "groups": 2, "dilation": [2, 2]}),
    (
        "conv2d.default",
        {"input": MAPS, "weight": drawn(8, 1, 3, 3), "groups": 4, "stride": [2, 2], "padding": [1, 1]},
    ),
    ("conv2d.default", {"input": MAPS, "weight": drawn(4, 1, 3, 3), "groups": 4, "stride": [2, 1]}),
    ("conv3d.default", {"input": VOLUME, "weight": drawn(3, 2, 2, 2, 2), "padding": [1, 0, 0]}),
    (
        "conv_transpose2d.input",
        {
            "input": MAPS,
            "weight": drawn(4, 3, 3, 2),
            "bias": drawn(3),
            "stride": [2, 3],
            "padding": [1, 0],
            "output_padding": [1, 2],
        },
    ),
    ("conv_transpose1d.default", {"input": LINE, "weight": drawn(4, 2, 3), "groups": 2, "dilation": [2]}),
    ("max_pool2d.default", POOL | {"padding": [1, 1]}),
    ("max_pool2d.default", POOL | {"ceil_mode": True}),
    ("max_pool1d.default", {"self": LINE, "kernel_size": [2]}),
    ("avg_pool2d.default", POOL | {"padding": [1, 1]}),
    ("avg_pool2d.default", POOL | {"padding": [1, 1], "count_include_pad": False, "ceil_mode": True}),
    ("avg_pool2d.default", POOL | {"padding": [1, 0], "ceil_mode": True}),
    ("avg_pool3d.default", {"self": VOLUME, "kernel_size": [2, 2, 2]}),
    ("adaptive_avg_pool2d.default", {"self": MAPS, "output_size": [3, 4]}),
    ("adaptive_avg_pool1d.default", {"self": LINE, "output_size": [1]}),
    ("upsample_nearest2d.vec", {"input": MAPS, "output_size": [9, 12], "scale_factors": None}),
    ("upsample_nearest2d.vec", {"input": MAPS, "output_size": None, "scale_factors": [1.5, 2.0]}),
    (
        "upsample_bilinear2d.vec",
        {"input": MAPS, "output_size": [9, 11], "align_corners": False, "scale_factors": None},
    ),
    (
        "upsample_bicubic2d.vec",
        {"input": MAPS, "output_size": None, "align_corners": False, "scale_factors": [2.0, 1.5]},
    ),
    (
        "upsample_linear1d.vec",
        {"input": LINE, "output_size": [5], "align_corners": False, "scale_factors": None},
    ),
    # layers
    ("linear.default", {"input": X, "weight": drawn(5, 4), "bias": drawn(5)}),
    ("mm.default", {"self": X[0], "mat2": drawn(4, 5)}),
    ("matmul.default", {"self": X, "other": drawn(2, 4, 5)}),
    ("matmul.default", {"self": X, "other": ROW}),
    ("addmm.default", {"self": drawn(5), "mat1": X[0], "mat2": drawn(4, 5), "beta": 2, "alpha": 0.5}),
    ("baddbmm.default", {"self": drawn(2, 3, 5), "batch1": X, "batch2": drawn(2, 4, 5)}),
    ("einsum.default", {"equation": "bij,bkj->bik", "tensors": [X, Y]}),
    ("embedding.default", {"weight": drawn(7, 3), "indices": whole(7, 2, 5)}),
    ("prelu.default", {"self": MAPS, "weight": drawn(4)}),
    (
        "batch_norm.default",
        {
            "input": MAPS,
            **AFFINE,
            **STATISTICS,
            "training": False,
            "momentum": 0.1,
            "eps": 1e-3,
            "cudnn_enabled": False,
        },
    ),
    (
        "instance_norm.default",
        {
            "input": MAPS,
            **AFFINE,
            "running_mean": None,
            "running_var": None,
            "use_input_stats": True,
            "momentum": 0.1,
            "eps": 1e-5,
            "cudnn_enabled": False,
        },
    ),
    ("layer_norm.default", {"input": X, "normalized_shape": [4], **AFFINE}),
    ("layer_norm.default", {"input": X, "normalized_shape": [3, 4], "eps": 1e-2}),
    ("group_norm.default", {"input": MAPS, "num_groups": 2, **AFFINE}),
    ("rms_norm.default", {"input": X, "normalized_shape": [4], "weight": ROW, "eps": 1e-6}),
    (
        "scaled_dot_product_attention.default",
        {"query": drawn(2, 4, 5, 3), "key": drawn(2, 4, 6, 3), "value": drawn(2, 4, 6, 2), "scale": 0.3},
    ),
    (
        "scaled_dot_product_attention.default",
        {
            "query": drawn(2, 4, 5, 3),
            "key": drawn(2, 2, 5, 3),
            "value": drawn(2, 2, 5, 3),
            "is_causal": True,
            "enable_gqa": True,
        },
    ),
    (
        "scaled_dot_product_attention.default",
        {
            "query": drawn(2, 1, 5, 3),
            "key": drawn(2, 1, 5, 3),
            "value": drawn(2, 1, 5, 3),
            "attn_mask": np.tril(np.ones((5, 5), bool)),
        },
    ),
    (
        "lstm.input",
        {"input": X, "hx": STATES, "params": weights_of(4, directions=2), **GATES, "bidirectional": True},
    ),
    (
        "gru.input",
        {
            "input": X,
            "hx": STATES[0][:2],
            "params": weights_of(3, directions=1),
            **GATES,
            "bidirectional": False,
        },
    ),
    (
        "rnn_tanh.input",
        {
            "input": X,
            "hx": STATES[0][:2],
            "params": weights_of(1, directions=1),
            **GATES,
            "bidirectional": False,
        },
    ),
]


def mapped(arguments: Any, change: Any) -> Any:
    """Arguments with every array changed."""
    if isinstance(arguments, dict):
        return {name: mapped(value, change) for name, value in arguments.items()}
    if isinstance(arguments, list):
        return [mapped(value, change) for value in arguments]
    return change(arguments) if isinstance(arguments, np.ndarray) else arguments


def by_aten(operation: str, arguments: dict[str, Any]) -> list[Array]:
    from modelkeeper.frontends.torch.run_program import ENGINE as ATEN

    return [ATEN.array(tensor) for tensor in ATEN.apply(operation, mapped(arguments, ATEN.tensor))]


@pytest.fixture(scope="module")
def golden() -> dict[str, Array]:
    if not GOLDEN.exists():
        results = {
            f"{number}.{place}": array
            for number, case in enumerate(CASES)
            for place, array in enumerate(by_aten(*case))
        }
        np.savez_compressed(GOLDEN, allow_pickle=False, **results)
    with np.load(GOLDEN) as held:
        return dict(held)


def expected(golden: dict[str, Array], number: int) -> list[Array]:
    return [golden[f"{number}.{place}"] for place in range(len(golden)) if f"{number}.{place}" in golden]


# Each operation costs JAX a compilation of its own: there, every third case has to do.
EVERY = 3 if keras.backend.backend() == "jax" else 1


@pytest.mark.parametrize("number", range(0, len(CASES), EVERY), ids=lambda number: CASES[number][0])
def test_an_operation_gives_what_aten_gives(golden: dict[str, Array], number: int) -> None:
    operation, arguments = CASES[number]
    made = ENGINE.apply(operation, mapped(arguments, ENGINE.tensor))
    wanted = expected(golden, number)
    assert len(made) == len(wanted)
    for tensor, array in zip(made, wanted, strict=True):
        np.testing.assert_allclose(ENGINE.array(tensor), array, rtol=2e-4, atol=2e-5)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")
def test_what_is_kept_is_what_aten_gives(golden: dict[str, Array]) -> None:
    for number, case in enumerate(CASES):
        for kept, array in zip(expected(golden, number), by_aten(*case), strict=True):
            np.testing.assert_allclose(kept, array, rtol=1e-4, atol=1e-5)


def test_most_operations_of_the_list_are_carried_out() -> None:
    from modelkeeper.frontends.programs.operations import ALLOWED

    assert len(FUNCTIONS) > 0.9 * len(ALLOWED)
    with pytest.raises(InvalidProgram, match=r"im2col\.default"):
        ENGINE.apply("im2col.default", {})
