"""Which arguments would a kernel not survive, or would it read beside its operands? Told by shapes alone.

    check_arguments(operation, given)        raises ValueError for what no model does

Frameworks check what their own callers get wrong, not what was made up: some kernels divide by a size, or
trust that weights have the shapes that go with each other. Here are the rules for those, and for numbers that
all operations take: axes, windows, counts. `given`: arguments by name; tensors have shapes.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

Given = Mapping[str, Any]
Shape = tuple[int, ...]
MOST = 2**31  # of a size, a step, a place: kernels have counters of 32 bits
_FIRST = ("self", "input", "v", "weight", "tensors")  # the operand whose axes are meant
_AXES = ("dim", "dims", "dim0", "dim1", "dim2", "dimension", "source", "destination", "start_dim", "end_dim")
_ONE_MORE = ("unsqueeze.default", "stack.default")  # may name the axis that they make
_POSITIVE = set(
    """kernel_size stride dilation groups num_groups upscale_factor downscale_factor chunks split_size
    num_layers""".split()
)
_COUNTS = set(
    """k n m steps repeats length split_sizes output_padding normalized_shape output_size""".split()
)
_MODES = {"normalization": 3}
_TRUTHS = set(
    """keepdim train training bidirectional batch_first is_causal enable_gqa ceil_mode count_include_pad
    align_corners has_biases use_input_stats largest sorted descending onesided forward""".split()
)
_NEVER_NEGATIVE = ("conv", "max_pool", "avg_pool", "im2col")  # their paddings


def check_arguments(operation: str, given: Given) -> None:
    """Refuse what no model does.

    Raises:
        ValueError: It says what. (Or whatever else comes of arguments of other types.)
    """
    rank = _rank(given)
    for name, value in given.items():
        if value is None or hasattr(value, "shape"):
            continue
        items = value if isinstance(value, list) else [value]
        if not any(hasattr(item, "shape") for item in items):
            _check_items(operation, name, items, rank, several=isinstance(value, list))
    packet = operation.partition(".")[0]
    rule = _RULES.get(packet)
    if rule is not None:
        rule(given)


def _check_items(operation: str, name: str, items: list[Any], rank: int, *, several: bool) -> None:
    if several and name != "scale_factors" and not all(_whole(item) for item in items):
        raise ValueError(f"{name} holds a number that is too large, or none")
    if name in _TRUTHS and not isinstance(items[0], bool):
        raise ValueError(f"{name} is neither true nor false")
    if name in _AXES:
        axes = rank + (operation in _ONE_MORE)
        if not all(_whole(item) and -max(1, axes) <= item < max(1, axes) for item in items):
            raise ValueError(f"{name} names an axis that is not there")
        if several and len({item % max(1, axes) for item in items}) < len(items):
            raise ValueError(f"{name} names an axis twice")
    least = 1 if name in _POSITIVE else 0 if name in _COUNTS else None
    if name == "padding" and operation.startswith(_NEVER_NEGATIVE) and several:
        least = 0
    if name == "step" and operation.startswith(("slice", "unfold")):
        least = 1
    if least is not None and not all(_whole(item) and item >= least for item in items):
        raise ValueError(f"{name} is below {least}, or no number")
    if name in _MODES and not (_whole(items[0]) and 0 <= items[0] < _MODES[name]):
        raise ValueError(f"{name} is none that there is")
    if name == "scale_factors" and not all(
        isinstance(item, (int, float)) and 0 < item < MOST for item in items
    ):
        raise ValueError("scale_factors are no numbers above 0")


def _whole(item: Any) -> bool:
    return isinstance(item, int) and not isinstance(item, bool) and -MOST <= item < MOST


def _rank(given: Given) -> int:
    for name in _FIRST:
        value: Any = given.get(name)
        value = value[0] if isinstance(value, list) and value else value
        if hasattr(value, "shape"):
            return len(value.shape)
    return 0


# -- rules of single operations ---------------------------------------------------------------------


def _shape(given: Given, name: str) -> Shape:
    return tuple(int(size) for size in given[name].shape)


def _ensure(holds: bool, problem: str) -> None:
    if not holds:
        raise ValueError(problem)


def _each(given: Given, names: tuple[str, ...], wanted: Shape) -> None:
    for name in names:
        if given.get(name) is not None:
            _ensure(_shape(given, name) == wanted, f"{name} is of shape {_shape(given, name)}, not {wanted}")


def _recurrent(gates: int) -> Callable[[Given], None]:
    def rule(given: Given) -> None:
        shape, layers = _shape(given, "input"), given["num_layers"]
        _ensure(len(shape) == 3 and all(shape), "its input is no batch of sequences")
        batch, taken = shape[0 if given["batch_first"] else 1], shape[2]
        states = given["hx"] if isinstance(given["hx"], list) else [given["hx"]]
        ways, params, biased = 2 if given["bidirectional"] else 1, given["params"], given["has_biases"]
        _ensure(layers * ways <= 4096, "too many layers")
        _ensure(len(states) == (2 if gates == 4 else 1), f"{len(states)} states")
        hidden = tuple(map(int, states[0].shape))[-1:]
        cell = hidden if gates < 4 else tuple(map(int, states[1].shape))[-1:]
        _ensure(bool(hidden) and hidden[0] > 0 and bool(cell) and cell[0] > 0, "states without units")
        projected = hidden != cell  # an LSTM may put out fewer numbers than it remembers
        for state, units in zip(states, (hidden, cell), strict=False):
            _ensure(tuple(map(int, state.shape)) == (layers * ways, batch, *units), "states of other shapes")
        each = 2 + 2 * biased + projected
        _ensure(len(params) == each * layers * ways, f"{len(params)} weights, not {each * layers * ways}")
        rows = gates * cell[0]
        for place in range(layers * ways):
            read = taken if place < ways else hidden[0] * ways
            wanted: list[Shape] = [(rows, read), (rows, hidden[0])]
            wanted += [(rows,), (rows,)] * biased + [(hidden[0], cell[0])] * projected
            found = [tuple(map(int, tensor.shape)) for tensor in params[each * place : each * (place + 1)]]
            _ensure(found == wanted, f"weights of shapes {found}, not {wanted}")

    return rule


def _attention(given: Given) -> None:
    query, key, value = (_shape(given, name) for name in ("query", "key", "value"))
    _ensure(len(query) == len(key) == len(value) and len(query) >= 2, "operands of other ranks")
    _ensure(all((*query, *key, *value)), "an axis of size 0")
    _ensure(query[-1] == key[-1] and key[-2] == value[-2], f"{query}, {key} and {value} do not go together")
    heads = [shape[-3] if len(shape) > 2 else 1 for shape in (query, key, value)]
    shared = given.get("enable_gqa") is True
    if shared:
        _ensure(heads[1] == heads[2] and heads[0] % heads[1] == 0, f"{heads} heads")
    for sizes in zip(*(shape[: -3 if shared else -2] for shape in (query, key, value)), strict=True):
        _ensure(len({*sizes} - {1}) < 2, f"{query}, {key} and {value} are of other batches")
    if given.get("attn_mask") is not None:
        mask, scores = _shape(given, "attn_mask"), (*map(max, query[:-2], key[:-2]), query[-2], key[-2])
        pairs = zip(reversed(mask), reversed(scores), strict=False)
        _ensure(len(mask) <= len(scores), f"a mask of {mask} for {scores}")
        _ensure(all(have in (1, wanted) for have, wanted in pairs), f"a mask of {mask} for {scores}")


def _weight_norm(given: Given) -> None:
    whole, gain, axis = _shape(given, "v"), _shape(given, "g"), given.get("dim", 0)
    _ensure(bool(whole) and all(whole), "weights without numbers")
    if axis == -1:
        _ensure(math.prod(gain) == 1, f"a gain of {gain} for all weights")
    else:
        wanted = tuple(size if place == axis else 1 for place, size in enumerate(whole))
        _ensure(gain == wanted, f"a gain of {gain}, not {wanted}")


def _fourier(given: Given) -> None:
    kind = "complex" if "forward" in given else "float"
    _ensure(kind in str(given["self"].dtype), f"numbers that are not {kind}")
    _ensure(all(_shape(given, "self")), "an axis of size 0")


def _channels(given: Given) -> None:
    shape = _shape(given, "input")
    _ensure(len(shape) >= 2, "an input without channels")
    _each(given, ("weight", "bias", "running_mean", "running_var"), (shape[1],))


def _groups(given: Given) -> None:
    _channels(given)
    shape, groups = _shape(given, "input"), given["num_groups"]
    _ensure(shape[1] > 0 and shape[1] % groups == 0, f"{shape[1]} channels in {groups} groups")


def _last_axes(given: Given) -> None:
    shape, wanted = _shape(given, "input"), tuple(given["normalized_shape"])
    _ensure(
        bool(wanted) and all(wanted) and shape[-len(wanted) :] == wanted, f"{wanted} of an input of {shape}"
    )
    _each(given, ("weight", "bias"), wanted)


def _embedding(given: Given) -> None:
    _ensure(len(_shape(given, "weight")) == 2, "a table that is no matrix")
    _ensure("int" in str(given["indices"].dtype), "places that are no whole numbers")


def _prelu(given: Given) -> None:
    shape, slopes = _shape(given, "self"), math.prod(_shape(given, "weight"))
    _ensure(slopes == 1 or (len(shape) > 1 and slopes == shape[1]), f"{slopes} slopes for {shape}")


def _convolution(given: Given) -> None:
    shape, weight = _shape(given, "input"), _shape(given, "weight")
    _ensure(len(weight) >= 3 and all(weight), f"a kernel of {weight}")
    _ensure(len(shape) in (len(weight) - 1, len(weight)) and all(shape[1:]), f"an input of {shape}")


def _parts(given: Given) -> None:
    shape, factor = _shape(given, "self"), given.get("groups", given.get("upscale_factor", 1))
    _ensure(len(shape) >= 3, f"an input of {shape}")
    _ensure(shape[-3] % factor == 0, f"{shape[-3]} channels in {factor} parts")


_RULES: dict[str, Callable[[Given], None]] = {
    "lstm": _recurrent(4),
    "gru": _recurrent(3),
    "rnn_tanh": _recurrent(1),
    "rnn_relu": _recurrent(1),
    "scaled_dot_product_attention": _attention,
    "_weight_norm": _weight_norm,
    "_fft_c2c": _fourier,
    "_fft_r2c": _fourier,
    "batch_norm": _channels,
    "instance_norm": _channels,
    "group_norm": _groups,
    "layer_norm": _last_axes,
    "rms_norm": _last_axes,
    "embedding": _embedding,
    "prelu": _prelu,
    "channel_shuffle": _parts,
    "pixel_shuffle": _parts,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _convolution),
}
