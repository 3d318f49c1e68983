"""Programs as an attacker would write them: a grammar over every operation on the list.

    for number in range(1000):
        data = hostile_program(number)           the bytes of a program; the same number, the same program

Each begins as a call that makes sense, since what makes none is refused at the door. Then a few things are
spoilt: the size of an axis, the rank or the dtype of an operand, a number among the arguments, a whole
argument; often what one operation made is given to the next. Operations take turns, so all are tried.
"""

import base64
import json
import random
import zlib
from typing import Any

import numpy as np

from modelkeeper.frontends.programs.operations import ALLOWED, Parameter, signature
from modelkeeper.frontends.programs.program import DTYPES, FORMAT, VERSION

OPERATIONS = sorted(ALLOWED)
EXAMPLES, WIDTH = 4, 8  # what programs are run on

# Shapes with which an operation makes sense, by the first name of the operation that the key begins.
_SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "linear": {"input": (2, 4, 8), "weight": (6, 8), "bias": (6,)},
    "conv1d": {"input": (2, 4, 8), "weight": (6, 4, 3), "bias": (6,)},
    "conv2d": {"input": (2, 4, 8, 8), "weight": (6, 4, 3, 3), "bias": (6,)},
    "conv3d": {"input": (2, 4, 4, 4, 4), "weight": (6, 4, 2, 2, 2), "bias": (6,)},
    "conv_transpose1d": {"input": (2, 4, 8), "weight": (4, 6, 3), "bias": (6,)},
    "conv_transpose2d": {"input": (2, 4, 8, 8), "weight": (4, 6, 3, 3), "bias": (6,)},
    "conv_transpose3d": {"input": (2, 4, 4, 4, 4), "weight": (4, 6, 2, 2, 2), "bias": (6,)},
    "batch_norm": {"input": (2, 4, 8), "*": (4,)},
    "instance_norm": {"input": (2, 4, 8), "*": (4,)},
    "group_norm": {"input": (2, 4, 8), "*": (4,)},
    "layer_norm": {"input": (2, 4, 8), "*": (8,)},
    "rms_norm": {"input": (2, 4, 8), "*": (8,)},
    "embedding": {"weight": (10, 4), "indices": (2, 3)},
    "prelu": {"self": (2, 4, 8), "weight": (4,)},
    "lstm": {"input": (5, 2, 8), "hx": (1, 2, 4), "params": (16, 4)},
    "gru": {"input": (5, 2, 8), "hx": (1, 2, 4), "params": (12, 4)},
    "rnn_tanh": {"input": (5, 2, 8), "hx": (1, 2, 4), "params": (4, 4)},
    "rnn_relu": {"input": (5, 2, 8), "hx": (1, 2, 4), "params": (4, 4)},
    "scaled_dot_product_attention": {"*": (2, 2, 4, 8), "attn_mask": (4, 4)},
    "addmm": {"self": (4, 8), "mat1": (4, 6), "mat2": (6, 8)},
    "mm": {"self": (4, 6), "mat2": (6, 8)},
    "bmm": {"self": (2, 4, 6), "mat2": (2, 6, 8)},
    "baddbmm": {"self": (2, 4, 8), "batch1": (2, 4, 6), "batch2": (2, 6, 8)},
    "matmul": {"self": (2, 4, 6), "other": (6, 8)},
    "t": {"self": (4, 6)},
    "einsum": {"*": (4, 4, 4)},
    "_weight_norm": {"v": (6, 4, 3), "g": (6, 1, 1)},
    "view_as_complex": {"self": (2, 4, 2)},
    "pixel_shuffle": {"self": (2, 8, 4, 4)},
    "pixel_unshuffle": {"self": (2, 2, 8, 8)},
    "channel_shuffle": {"self": (2, 8, 4, 4)},
    "im2col": {"self": (2, 4, 8, 8)},
    "max_pool1d": {"self": (2, 4, 8)},
    "avg_pool1d": {"self": (2, 4, 8)},
    "adaptive_avg_pool1d": {"self": (2, 4, 8)},
    "adaptive_max_pool1d": {"self": (2, 4, 8)},
    "max_pool3d": {"self": (2, 2, 4, 4, 4)},
    "avg_pool3d": {"self": (2, 2, 4, 4, 4)},
    "adaptive_avg_pool3d": {"self": (2, 2, 4, 4, 4)},
    "upsample_nearest1d": {"*": (2, 4, 8)},
    "upsample_linear1d": {"*": (2, 4, 8)},
    "upsample_nearest3d": {"*": (2, 2, 4, 4, 4)},
    "upsample_trilinear3d": {"*": (2, 2, 4, 4, 4)},
    "max_pool2d": {"self": (2, 4, 8, 8)},
    "max_pool2d_with_indices": {"self": (2, 4, 8, 8)},
    "avg_pool2d": {"self": (2, 4, 8, 8)},
    "adaptive_avg_pool2d": {"self": (2, 4, 8, 8)},
    "adaptive_max_pool2d": {"self": (2, 4, 8, 8)},
    "upsample_nearest2d": {"*": (2, 4, 8, 8)},
    "upsample_bilinear2d": {"*": (2, 4, 8, 8)},
    "upsample_bicubic2d": {"*": (2, 4, 8, 8)},
    "reflection_pad2d": {"self": (2, 4, 8, 8)},
    "replication_pad2d": {"self": (2, 4, 8, 8)},
    "fill": {"self": (2, 4, 8), "value": ()},
    "masked_fill": {"*": (2, 4, 8), "value": ()},
    "index_select": {"self": (2, 4, 8), "index": (3,)},
    "gather": {"self": (2, 4, 8), "index": (2, 4, 3)},
}
_ELSE = (2, 4, 8)
_WORDS = {
    "mode": ["constant", "reflect", "replicate", "circular"],
    "approximate": ["none", "tanh"],
    "rounding_mode": ["trunc", "floor"],
    "padding": ["valid", "same"],
    "equation": ["abc,abd->acd", "abc,bcd->ad", "abc->", "...a,...a->...", "abc,def,ghi->", "aab->ab"],
}
_EDGES = [0, 1, -1, 2, 3, 7, 64, 4096, 2**31 - 1, 2**31, -(2**31), 2**32, 2**62, 2**63 - 1, -(2**63), 2**64]
_FLOATS = [0.0, -0.0, 1.0, -1.5, 1e-300, 1e300, 0.5]
_SPECIAL = [{"f": "inf"}, {"f": "-inf"}, {"f": "nan"}]
_TRUE = set(
    """keepdim train bidirectional batch_first is_causal enable_gqa cudnn_enabled cudnn_enable ceil_mode
    count_include_pad align_corners sorted largest descending half_to_float transposed implicit has_biases
    training use_input_stats sparse scale_grad_by_freq sparse_grad forward onesided""".split()
)
_PLAIN: dict[str, Any] = {
    "has_biases": True, "onesided": True, "forward": True, "num_layers": 1, "groups": 1, "num_groups": 2,
    "group": 2, "N": 2, "C": 4, "HxW": 8, "normalized_shape": [8], "normalization": 0, "dim": 1,
    "dims": [0, 2, 1], "kernel_size": [2, 2, 2], "stride": [1, 1, 1], "padding": [1, 1, 1],
    "dilation": [1, 1, 1], "output_padding": [0, 0, 0], "output_size": [4, 4, 4], "scale_factors": None,
    "shape": [8, 8], "size": [2, 4, 8], "repeats": [1, 2, 1], "sizes": [2, 2], "split_size": 2,
    "split_sizes": [2, 2], "chunks": 2, "k": 2, "n": 4, "m": 4, "steps": 4, "start": 0, "end": 4, "step": 1,
    "length": 2, "index": 1, "pad": [1, 1], "shifts": [1], "eps": 1e-5, "momentum": 0.1, "dropout": 0.0,
    "upscale_factor": 2, "downscale_factor": 2, "dimension": 2, "source": 0, "destination": 1,
    "interpolation_mode": 0, "padding_mode": 0, "dim0": 0, "dim1": 1, "dim2": 2, "offset": 0, "start_dim": 0,
    "end_dim": -1, "p": 2, "other": 2, "exponent": 2, "value": 1, "min": 0, "max": 1, "fill_value": 1,
    "s": 1, "self": 2, "threshold": 1, "weight": 0.5,
}  # fmt: skip
# The same for single operations: these stay as they are until they are spoilt.
_EXACTLY: dict[str, dict[str, Any]] = {
    "einsum": {"path": None},
    "_weight_norm": {"dim": 0},
    "roll": {"dims": [0]},
    "softmax": {"dtype": None},
    "log_softmax": {"dtype": None},
    "instance_norm": {"use_input_stats": True, "running_mean": None, "running_var": None},
    "mean": {"dtype": None},
    "pad": {"value": None},
    "split_with_sizes": {"dim": 1},
    "split": {"dim": 1},
    "chunk": {"dim": 1},
    "unbind": {"dim": 0},
    **{key: {"padding": [1, 1]} for key in ("reflection_pad1d", "replication_pad1d")},
    **{key: {"padding": [1, 1, 1, 1]} for key in ("reflection_pad2d", "replication_pad2d")},
    **{
        f"upsample_{kind}": {"output_size": None, "scale_factors": [2.0] * int(kind[-2])}
        for kind in (
            "nearest1d",
            "nearest2d",
            "nearest3d",
            "linear1d",
            "bilinear2d",
            "bicubic2d",
            "trilinear3d",
        )
    },
}
_PIECES = {"split": 2, "split_with_sizes": 2, "chunk": 2, "unbind": 2}  # that lists are taken into
_DTYPES = {  # of operands, where they are not plain numbers
    "where": {"condition": "bool"},
    "masked_fill": {"mask": "bool"},
    "embedding": {"indices": "int64"},
    "index": {"indices": "int64"},
    "index_select": {"index": "int64"},
    "gather": {"index": "int64"},
    **{key: {"*": "int64"} for key in ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not")},
    **{key: {"*": "complex64"} for key in ("_fft_c2c", "view_as_real", "imag")},
}
_PLACES = {"1d": 1, "2d": 2, "3d": 3, "im2col": 2}  # by what a name holds


def hostile_program(number: int, seed: int = 0) -> bytes:
    """The bytes of one program; operations take turns."""
    return _Writer(random.Random(f"{seed}/{number}")).program(OPERATIONS[number % len(OPERATIONS)])


def sensible_program(operation: str) -> bytes:
    """The bytes of a program with one step, in which nothing is spoilt: what hostile ones begin as."""
    writer = _Writer(random.Random(operation), spoils=0)
    return writer.program(operation, length=1)


class _Writer:
    def __init__(self, chance: random.Random, spoils: int | None = None) -> None:
        self._chance = chance
        self._constants: list[Any] = []
        self._calls: list[tuple[str, list[Any], int]] = []  # what is left open: operands, as ("made", n)
        self._spoils = chance.choice((0, 1, 1, 1, 2, 3)) if spoils is None else spoils

    def program(self, operation: str, length: int = 0) -> bytes:
        length = length or self._chance.choice((1, 1, 1, 2, 3, 6))
        for _ in range(length - 1):
            self._call(self._chance.choice(OPERATIONS))
        self._call(operation)
        return json.dumps(self._document()).encode()

    def _document(self) -> dict[str, Any]:
        first, made, numbers = 1 + len(self._constants), 0, []
        for _, _, results in self._calls:
            numbers.append(first + made)
            made += results

        def closed(item: Any) -> Any:
            if isinstance(item, list):
                return [closed(each) for each in item]
            if isinstance(item, tuple):
                return {"v": 1 + item[1] if item[0] == "constant" else numbers[item[1]]}
            return item

        steps = [[operation, closed(given), results] for operation, given, results in self._calls]
        return {
            "format": FORMAT,
            "version": VERSION,
            "inputs": [["x", "float32", [{"b": 1}, WIDTH]]],
            "tensors": [],
            "constants": self._constants,
            "steps": steps,
            "outputs": [numbers[-1]],
            "layers": {"x": 0, "last": numbers[-1]},
        }

    def _call(self, operation: str) -> None:
        known, chance = signature(operation), self._chance
        assert known is not None
        given = [self._argument(operation, parameter) for parameter in known.parameters]
        for _ in range(self._spoils):
            place = chance.randrange(len(given))
            given[place] = self._spoilt(known.parameters[place], given[place])
        least = known.required
        if self._spoils and chance.random() < 0.5:
            given = given[: chance.randint(least, len(given))]
        results = known.results
        if known.lists:
            results = _PIECES[operation.partition(".")[0]] if chance.random() < 0.9 else chance.choice((1, 3))
        self._calls.append((operation, given, results))

    # -- what makes sense -------------------------------------------------------------------------

    def _argument(self, operation: str, parameter: Parameter) -> Any:
        chance, name, packet = self._chance, parameter.name, operation.partition(".")[0]
        exactly = _EXACTLY.get(packet, {})
        if name in exactly and not (exactly[name] is None and not parameter.optional):
            return exactly[name]
        if parameter.tensor:
            if parameter.optional and chance.random() < 0.3:
                return None
            if self._calls and chance.random() < 0.3:
                made: Any = ("made", chance.randrange(len(self._calls)))
                return [made] if parameter.many else made
            return self._operands(packet, parameter)
        if parameter.given and chance.random() < 0.4:
            return parameter.default
        if parameter.dtype:
            return chance.choice([None, *DTYPES])
        if name in _TRUE and name not in _PLAIN:
            return False
        if name in _WORDS and not parameter.many:
            return chance.choice(_WORDS[name])
        plain = _PLAIN.get(name, parameter.default)
        if parameter.many:
            places = next((n for key, n in _PLACES.items() if key in packet), 3)
            plain = [plain] if isinstance(plain, int) else list(plain or ())
            windowed = name in (
                "kernel_size",
                "stride",
                "padding",
                "dilation",
                "output_padding",
                "output_size",
            )
            return plain[:places] if windowed else plain
        return plain if not isinstance(plain, list) else plain[0] if plain else 1

    def _operands(self, packet: str, parameter: Parameter) -> Any:
        shapes = _SHAPES.get(packet, {})
        shape = shapes.get(parameter.name, shapes.get("*", _ELSE))
        if parameter.name == "params":
            gates, hidden = shape
            taken = [(gates, 8), (gates, hidden), (gates,), (gates,)]
            return [self._constant(each, "float32") for each in taken]
        kinds = _DTYPES.get(packet, {})
        dtype = kinds.get(parameter.name, kinds.get("*", "float32"))
        if not parameter.many:
            return self._constant(shape, dtype)
        count = 2 if parameter.name in ("hx", "tensors") else 1
        return [self._constant(shape, dtype) for _ in range(count)]

    def _constant(self, shape: tuple[int, ...], dtype: str) -> tuple[str, int]:
        numbers = np.random.default_rng(self._chance.getrandbits(32)).integers(0, 2, shape)
        data = base64.b64encode(zlib.compress(numbers.astype(DTYPES[dtype]).tobytes())).decode()
        self._constants.append([dtype, list(shape), data])
        return "constant", len(self._constants) - 1

    # -- and what does not ------------------------------------------------------------------------

    def _spoilt(self, parameter: Parameter, argument: Any) -> Any:
        chance = self._chance
        if parameter.tensor:
            if isinstance(argument, list) and argument and chance.random() < 0.7:
                place = chance.randrange(len(argument))
                spoilt = [self._other_operand() if n == place else each for n, each in enumerate(argument)]
                return spoilt[: chance.randint(0, len(spoilt))] if chance.random() < 0.2 else spoilt
            made = self._other_operand()
            return [made] * chance.choice((1, 2, 3)) if parameter.many else made
        if parameter.many:
            numbers = list(argument) if isinstance(argument, list) else []
            how = chance.random()
            if numbers and how < 0.6:
                numbers[chance.randrange(len(numbers))] = self._number()
                return numbers
            return [self._number() for _ in range(chance.randint(0, 6))]
        if isinstance(argument, str) and chance.random() < 0.7:
            return chance.choice(["", "a" * 400, "...,...->...", "ab,bc,cd,de->", "\x1b[31m", "aaaa,a->a"])
        return self._number()

    def _other_operand(self) -> tuple[str, int] | dict[str, int]:
        chance = self._chance
        if chance.random() < 0.1:
            return {"v": 0}
        rank = chance.choice((0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7))
        shape = tuple(chance.choice((0, 1, 2, 3, 4, 4, 6, 8, 8, 16, 37)) for _ in range(rank))
        while np.prod(shape, dtype=np.int64) > 2**14:
            shape = shape[1:]
        made = self._constant(shape, chance.choice([*DTYPES, *["float32"] * 8, *["int64"] * 2]))
        if shape and chance.random() < 0.1:  # an axis that grows when the program runs
            kept = self._constants[made[1]]
            axis = chance.randrange(rank_of(kept))
            kept[1][axis] = {"b": chance.choice((1, 1000, 2**20, 2**40, 2**50))}
            whole = [1 if isinstance(size, dict) else size for size in kept[1]]
            kept[2] = base64.b64encode(zlib.compress(np.ones(whole, DTYPES[kept[0]]).tobytes())).decode()
        return made

    def _number(self) -> Any:
        chance = self._chance
        how = chance.random()
        if how < 0.7:
            return chance.choice(_EDGES)
        if how < 0.8:
            return chance.choice(_FLOATS)
        if how < 0.85:
            return chance.choice(_SPECIAL)
        if how < 0.95:
            return {"b": chance.choice((1, 2, 2**20, 2**62))}
        return chance.choice((True, False, None, "none"))


def rank_of(constant: list[Any]) -> int:
    """The number of axes of a constant of a document."""
    return len(constant[1])
