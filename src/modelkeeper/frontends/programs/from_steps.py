"""What is a step of the vocabulary in a program?

Front ends whose traces know nothing but the vocabulary write programs by it: the operation and its overload
follow from the step's name and arguments. What a program has no single operation for becomes several: a
border that differs before and behind a map, a maximum over all places.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from modelkeeper.errors import NoProgram
from modelkeeper.frontends.programs.operations import signature
from modelkeeper.frontends.programs.write import Call
from modelkeeper.tracing.trace import Step, Value

# By the name in the vocabulary, where it is another one, or where the overload is not the default.
_OVERLOADS = {
    "view": "reshape.default",
    "pad": "constant_pad_nd.default",
    "weight_norm": "_weight_norm.default",
    "transpose": "transpose.int",
    "split": "split.Tensor",
    "slice": "slice.Tensor",
    "select": "select.int",
    "unbind": "unbind.int",
    "index": "index.Tensor",
    "where": "where.self",
    "prod": "prod.dim_int",
    "squeeze": "squeeze.dim",
    "conv_transpose2d": "conv_transpose2d.input",
    "conv_transpose3d": "conv_transpose3d.input",
    **{name: f"{name}.int" for name in ("softmax", "log_softmax")},
    **{name: f"{name}.correction" for name in ("var", "std", "var_mean")},
    **{name: f"{name}.input" for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
    **{
        name: f"{name}.vec"
        for name in """upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d
        upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d""".split()
    },
}
# Of these there is one overload for tensors and one for numbers, told by this argument.
_EITHER = {
    **dict.fromkeys("add sub rsub mul div remainder eq ne lt le gt ge".split(), "other"),
    "masked_fill": "value",
    "fill": "value",
}
_NOTHING = ("clone", "dropout")
_ALWAYS = ("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "_prelu_kernel")
_NEEDED: dict[str, Any] = {
    "training": False,
    "momentum": 0.1,
    "cudnn_enabled": False,
    "use_input_stats": True,
}
_NEEDED |= {"scale_factors": None, "align_corners": False, "eps": 1e-5}


def calls_of(model: str, step: Step) -> list[Call]:
    """What a step is in a program.

    Raises:
        NoProgram: There is no operation for it. `model`: what the model is called.
    """
    return list(_Speller(model, step).calls())


class _Speller:
    """Spells one step; values that it makes on the way have numbers that no trace gives."""

    def __init__(self, model: str, step: Step) -> None:
        self._model, self._step = model, step
        self._given = dict(step.arguments)
        self._fresh = (Value(-64 * step.number - n, ()) for n in itertools.count(1))

    def calls(self) -> Iterator[Call]:
        step, name = self._step, self._step.name
        if name in _NOTHING or (name == "trunc" and not step.outputs[0].floating):
            yield self._copied()
            return
        padding = self._given.get("padding")
        rank = len(step.outputs[0].shape) - 2
        uneven = isinstance(padding, (list, tuple)) and rank > 0 and len(padding) == 2 * rank
        special = _SPECIAL.get(name.rstrip("123d"))
        if special is not None and (uneven or name in _ALWAYS):
            yield from special(self, rank)
        else:
            yield self._call(self._operation(name), self._given, step.outputs)

    def _copied(self) -> Call:
        """The same numbers, in another type where that matters: whole ones lose what is behind the point."""
        taken, made = self._step.inputs[0], self._step.outputs
        same = taken.dtype == made[0].dtype or (taken.floating and made[0].floating)
        return (
            Call("", {"self": taken}, made)
            if same
            else self._call("_to_copy.default", {"self": taken, "dtype": made[0].dtype}, made)
        )

    def _operation(self, name: str) -> str:
        given = self._given
        if name in _EITHER:
            overload = "Tensor" if isinstance(given.get(_EITHER[name]), Value) else "Scalar"
            return f"{name}.{overload}" + ("_mode" if given.get("rounding_mode") is not None else "")
        if name == "pow":
            return f"pow.Tensor_{'Tensor' if isinstance(given['exponent'], Value) else 'Scalar'}"
        if name in ("sum", "mean"):
            over = "dim_IntList" if name == "sum" else "dim"
            return f"{name}.{over if given.get('dim') is not None else 'default'}"
        if name in ("any", "all"):
            return f"{name}.{'dim' if given.get('dim') is not None else 'default'}"
        if name == "arange":
            return "arange.start_step"
        return _OVERLOADS.get(name, f"{name}.default")

    def _call(self, operation: str, arguments: dict[str, Any], outputs: Sequence[Value]) -> Call:
        known = signature(operation)
        if known is None:
            raise NoProgram(self._model, f"it uses {self._step.name}, which programs may not")
        given = {key: value for key, value in arguments.items() if value is not None}
        if operation == "reshape.default":
            given["shape"] = given.pop("size")
        for parameter in known.parameters:
            value = given.get(parameter.name)
            if value is None and not parameter.given and parameter.name in _NEEDED:
                given[parameter.name] = _NEEDED[parameter.name]
            elif not parameter.many and isinstance(value, (list, tuple)):
                if len(value) != 1:
                    raise NoProgram(self._model, f"it uses {self._step.name} over several axes")
                given[parameter.name] = value[0]
        strange = given.keys() - {parameter.name for parameter in known.parameters}
        if strange:
            raise NoProgram(self._model, f"it uses {self._step.name} with {', '.join(sorted(strange))}")
        return Call(operation, given, outputs)

    # -- several operations for one step --------------------------------------------------------

    def _bordered(self, taken: Value, rank: int, value: float = 0) -> tuple[Value, Call]:
        padding = self._given["padding"]
        pairs = zip(reversed(padding[:rank]), reversed(padding[rank:]), strict=True)
        pad = [width for pair in pairs for width in pair]
        made = next(self._fresh)
        return made, self._call(
            "constant_pad_nd.default", {"self": taken, "pad": pad, "value": value}, [made]
        )

    def _convolution(self, rank: int) -> Iterator[Call]:
        made, border = self._bordered(self._given["input"], rank)
        yield border
        rest = self._given | {"input": made, "padding": [0] * rank}
        yield self._call(self._operation(self._step.name), rest, self._step.outputs)

    def _conv_transpose(self, rank: int) -> Iterator[Call]:
        """Without cutting anything off, and then cut; what is to be added behind comes with the bias."""
        padding = self._given["padding"]
        extra = self._given.get("output_padding") or [0] * rank
        more = [n + max(0, -cut) for n, cut in zip(extra, padding[rank:], strict=True)]
        made = next(self._fresh)
        rest = self._given | {"padding": [0] * rank, "output_padding": more}
        yield self._call(self._operation(self._step.name), rest, [made])
        cuts = zip(reversed(padding[:rank]), reversed(padding[rank:]), strict=True)
        pad = [-max(0, width) for pair in cuts for width in pair]
        yield self._call("constant_pad_nd.default", {"self": made, "pad": pad}, self._step.outputs)

    def _max_pool(self, rank: int) -> Iterator[Call]:
        made, border = self._bordered(self._given["self"], rank, -math.inf)
        yield border
        rest = self._given | {"self": made, "padding": [0] * rank}
        yield self._call(f"{self._step.name}.default", rest, self._step.outputs)

    def _avg_pool(self, rank: int) -> Iterator[Call]:
        """Means over borders of zeros, divided by means of ones with the same border: what was counted."""
        taken, name = self._given["self"], f"{self._step.name}.default"
        plain = {key: self._given[key] for key in ("kernel_size", "stride") if key in self._given}
        made, border = self._bordered(taken, rank)
        if self._given.get("count_include_pad", True):
            yield border
            yield self._call(name, plain | {"self": made}, self._step.outputs)
            return
        yield border
        means = next(self._fresh)
        yield self._call(name, plain | {"self": made}, [means])
        ones = next(self._fresh)
        size = [1, 1, *taken.shape[2:]]
        yield self._call("full.default", {"size": size, "fill_value": 1.0, "dtype": taken.dtype}, [ones])
        wide, border = self._bordered(ones, rank)
        yield border
        shares = next(self._fresh)
        yield self._call(name, plain | {"self": wide}, [shares])
        yield self._call("div.Tensor", {"self": means, "other": shares}, self._step.outputs)

    def _adaptive_max_pool(self, rank: int) -> Iterator[Call]:
        if any(size != 1 for size in self._given["output_size"]):
            raise NoProgram(self._model, f"it uses {self._step.name}, which programs may not")
        over = {"self": self._given["self"], "dim": list(range(2, rank + 2)), "keepdim": True}
        yield self._call("amax.default", over, self._step.outputs)

    def _prelu_kernel(self, rank: int) -> Iterator[Call]:
        """A slope for what is negative, of any shape that broadcasts."""
        above, below, sloping = (next(self._fresh) for _ in range(3))
        taken, slope = self._given["self"], self._given["weight"]
        yield self._call("clamp_min.default", {"self": taken, "min": 0}, [above])
        yield self._call("clamp_max.default", {"self": taken, "max": 0}, [below])
        yield self._call("mul.Tensor", {"self": below, "other": slope}, [sloping])
        yield self._call("add.Tensor", {"self": above, "other": sloping}, self._step.outputs)


_SPECIAL: dict[str, Callable[[_Speller, int], Iterator[Call]]] = {
    "conv": _Speller._convolution,
    "conv_transpose": _Speller._conv_transpose,
    "max_pool": _Speller._max_pool,
    "avg_pool": _Speller._avg_pool,
    "adaptive_max_pool": _Speller._adaptive_max_pool,
    "_prelu_kernel": _Speller._prelu_kernel,
}
