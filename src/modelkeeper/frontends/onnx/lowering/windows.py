"""Windows that slide: pooling, and resizing."""

from collections.abc import Sequence
from typing import Any

from modelkeeper.frontends.onnx.lowering.entries import Call, NotLowered
from modelkeeper.frontends.onnx.lowering.layers import window_pads, written_pads
from modelkeeper.frontends.onnx.lowering.walk import Lowering, lowers
from modelkeeper.tracing.trace import Value


@lowers("MaxPool", "AveragePool")
def _pool(low: Lowering, call: Call) -> Value | Sequence[Value]:
    value, kernel = low.value(call.needed(0)), list(call.get("kernel_shape"))
    rank, maximum = len(kernel), call.node.op == "MaxPool"
    if rank not in (1, 2, 3):
        raise NotLowered
    strides, dilations = call.get("strides", [1] * rank), call.get("dilations", [1] * rank)
    pads = window_pads(call, value.shape[2:], kernel, strides, dilations)
    given: dict[str, Any] = {"self": value, "kernel_size": kernel, "stride": list(strides)}
    later: dict[str, Any] = {"padding": written_pads(pads)}
    wide = bool(call.get("ceil_mode", 0))
    if maximum:
        later["dilation"] = list(dilations)
    elif dilations != [1] * rank:
        raise NotLowered
    given |= later if wide or any(dilation != 1 for dilation in dilations) else _unusual(later)
    given["ceil_mode"] = True if wide else None
    if not maximum and any(pads) and not call.get("count_include_pad", 0):
        given["count_include_pad"] = False
    if maximum and len(call.node.outputs) > 1:
        return low.build.results(f"max_pool{rank}d_with_indices", [call.shape, call.shape], **given)
    return low.step(f"{'max' if maximum else 'avg'}_pool{rank}d", call, **given)


def _unusual(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that are not what they are by themselves: no padding, no dilation."""
    usual = {"padding": 0, "dilation": 1}
    return {key: numbers for key, numbers in arguments.items() if set(numbers) != {usual[key]}}


@lowers("GlobalAveragePool", "GlobalMaxPool")
def _global(low: Lowering, call: Call) -> Value:
    rank = len(call.shape) - 2
    if rank not in (1, 2, 3):
        raise NotLowered
    value, size = low.value(call.needed(0)), [1] * rank
    if call.node.op == "GlobalAveragePool":
        return low.step(f"adaptive_avg_pool{rank}d", call, self=value, output_size=size)
    shapes = [call.shape, call.shape]
    return low.build.results(f"adaptive_max_pool{rank}d", shapes, self=value, output_size=size)[0]


def _plain_nearest(call: Call, where: str, whole: bool) -> bool:
    """Does a resizing take the nearest place as PyTorch does: at or before where it falls?"""
    rounding = call.get("nearest_mode", "round_prefer_floor")
    if where == "asymmetric":
        return bool(rounding == "floor")
    return bool(whole and where in ("half_pixel", "pytorch_half_pixel") and rounding.startswith("round"))


@lowers("Resize", "Upsample")
def _resize(low: Lowering, call: Call) -> Value:
    value = low.value(call.needed(0))
    rank = len(value.shape) - 2
    if rank not in (1, 2, 3) or call.shape[:2] != value.shape[:2]:
        raise NotLowered
    if value.shape == call.shape:
        return value
    mode = call.get("mode", "nearest")
    names = {
        "nearest": ["nearest1d", "nearest2d", "nearest3d"],
        "linear": ["linear1d", "bilinear2d", "trilinear3d"],
    }
    if mode == "cubic" and rank == 2:
        name = "upsample_bicubic2d"
    elif mode in names:
        name = f"upsample_{names[mode][rank - 1]}"
    else:
        raise NotLowered
    where = call.get("coordinate_transformation_mode", "half_pixel")
    whole = all(after % size == 0 for after, size in zip(call.shape[2:], value.shape[2:], strict=True))
    if mode == "nearest" and not _plain_nearest(call, where, whole):
        raise NotLowered
    if mode != "nearest" and where not in ("half_pixel", "pytorch_half_pixel", "align_corners"):
        raise NotLowered
    if mode == "cubic" and abs(call.get("cubic_coeff_a", -0.75) + 0.75) > 1e-6:
        raise NotLowered
    corners = where == "align_corners"
    given = {} if mode == "nearest" else {"align_corners": corners}
    return low.step(name, call, input=value, output_size=list(call.shape[2:]), **given)
