"""Is anything called exact of ONNX models that is not? Operators between layers, run by onnxruntime.

What stands between two layers is written in short: it takes `a`, whose width grows, and makes `b`.

    Gather a i:3,0 > c axis=1 ; Relu c > b      i: whole numbers, n: one of them, f: a float, t: a tensor that
                                                is trained, of this shape, p: a positive one, m: a mask
    t:{w},{h}                                   sizes that follow from the width: see SIZES
"""

import ast
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, helper

from modelkeeper.frontends.onnx import describe
from modelkeeper.graph import Atom, leaves
from modelkeeper.warmstart.transfer import transfer
from modelkeeper.weights import Array
from tests.helpers.onnx_models import computed, drawn, model_of

ROWS, MAPS = (2, 5, 6), (2, 3, 8, 8)
NARROW, WIDER, DOUBLE = 8, 12, 16
SIZES: dict[str, Callable[[int], int]] = {
    "w": lambda width: width,
    "h": lambda width: width // 2,
    "q": lambda width: width // 4,
    "less": lambda width: width - 1,
    "more": lambda width: width + 2,
    "twice": lambda width: 2 * width,
    "four": lambda width: 4 * width,
}
FAR = np.float32(-np.inf)
MASKS: dict[str, Array] = {
    "causal": np.triu(np.full((5, 5), FAR), 1),
    "allowed": np.tril(np.ones((5, 5), bool)),
    "anti": np.tril(np.full((5, 5), FAR), -1),
    "nothing": np.zeros((5, 5), np.float32),
    "first": np.array([[0, FAR, FAR, FAR, FAR]], np.float32),  # one row for all queries
    "any": np.random.default_rng(1).normal(size=(5, 5)).astype(np.float32),
    "late": np.arange(5)[:, None] > 1,
    "later": np.arange(5)[:, None] > 2,
    "scales": np.array([1, 1, 2, 2], np.float32),
    "units": np.array([1, 2, 1, 1], np.float32),
}


class Case(NamedTuple):
    """Operators between two layers, and what is promised of the width of what they take."""

    text: str
    exact: tuple[int, ...] = (WIDER, DOUBLE)  # the widths that it is exactly widened to
    free: bool = True
    given: tuple[int, ...] = ROWS
    opset: int = 20
    taken: str = "w"  # how wide `b` is

    def model(self, width: int, seed: int) -> ModelProto:
        """The model of this width, with weights that are drawn."""
        sizes = {name: size(width) for name, size in SIZES.items()}
        taken = sizes[self.taken]
        if self.given == MAPS:
            tensors = drawn(seed, first=(width, 3, 1, 1), last=(3, taken, 1, 1), bias=(width,))
            text = f"Conv x first bias > a ; {self.text} ; Conv b last > y"
        else:
            tensors = drawn(seed, first=(6, width), last=(taken, 3), bias=(width,))
            text = f"MatMul x first > z ; Add z bias > a ; {self.text} ; MatMul b last > y"
        nodes = list(written(text.format(**sizes), tensors, np.random.default_rng(seed + 1)))
        return model_of(nodes, {"x": self.given}, ["y"], tensors, opset=self.opset)

    def inputs(self) -> dict[str, Array]:
        """What the model is run on."""
        return {"x": np.random.default_rng(3).normal(size=self.given).astype(np.float32)}


def written(text: str, tensors: dict[str, Array], rng: np.random.Generator) -> Iterator[NodeProto]:
    """The nodes of a text; constants in it are put beside the tensors."""
    for line in text.split(" ; "):
        (op, *taken), (*words,) = (part.split() for part in line.split(" > "))
        made = [word for word in words if "=" not in word]
        attributes = dict(word.split("=") for word in words if "=" in word)
        for place, name in enumerate(taken):
            if ":" in name:
                taken[place] = f"constant.{len(tensors)}"
                tensors[taken[place]] = constant(name, rng)
        names = ["" if name == "-" else name for name in taken]
        yield helper.make_node(op, names, made, **{key: literal(value) for key, value in attributes.items()})


def literal(text: str) -> Any:
    """A number or a list, or else the text itself."""
    return ast.literal_eval(text) if text[0] in "-[0123456789" else text


def constant(token: str, rng: np.random.Generator) -> Array:
    """The numbers that are meant: see the docstring of the module."""
    kind, text = token.split(":")
    if kind == "m":
        return MASKS[text]
    if kind in "fn":
        return np.array(float(text), np.float32) if kind == "f" else np.array(int(text))
    numbers = np.array([int(number) for number in text.split(",") if number], np.int64)
    if kind == "i":
        return numbers
    table = rng.normal(size=tuple(numbers)).astype(np.float32)
    return np.abs(table) + 1 if kind == "p" else table


def never(text: str, **rest: Any) -> Case:
    """Operators that pin the width."""
    return Case(text, (), False, **rest)


REDUCED = "Mean Sum Max Min Prod LogSumExp L1 L2 SumSquare".split()
OVER_UNITS = {"Mean": (DOUBLE,), "Sum": (WIDER, DOUBLE), "Max": (WIDER, DOUBLE), "Min": (WIDER, DOUBLE)}
PARTS = "SequenceAt s n:0 > c ; SequenceAt s n:1 > d"
HEADS = "MatMul a t:{w},{w} > q ; MatMul a t:{w},{w} > k ; MatMul a t:{w},{w} > v"
APART = " ; ".join(
    f"Reshape {x} i:2,5,2,{{h}} > {x}.3 ; Transpose {x}.3 > {x}.4 perm=[0,2,1,3]" for x in ("q", "k", "v")
)
TOGETHER = "Reshape r i:2,5,{w} > b"
ONE_HEAD = "MatMul a t:{w},{w} > q ; MatMul a t:{w},{h} > k ; MatMul a t:{w},{h} > v"
SCORES = "Transpose k > u perm=[0,2,1] ; Mul u f:0.6 > l ; Mul q f:0.6 > r ; MatMul r l > s"
WEIGHED = "Softmax {} > o ; MatMul o v > b"
CASES = [
    # products
    Case("Einsum a t:{w},{w} > b equation=bsd,de->bse"),
    Case("Einsum a t:{w},{w} > b equation=bsd,ed->bse"),
    Case("Einsum t:5,5 a > b equation=ts,bsd->btd"),
    Case(
        "Relu a > r ; Einsum a t:{w},7 > s equation=bqd,dk->bqk ; Einsum s t:7,{w} > b equation=bqk,kd->bqd"
    ),
    never("Einsum a a > s equation=bqd,bkd->kbq ; Einsum s a > b equation=kbq,bkd->bqd"),
    never("Einsum a t:{w} > b equation=bsd,d->bsd"),
    never("Einsum a t:{w},{w} > b equation=...d,de->...e"),
    # along an axis
    *(Case(f"Reduce{name} a i:1 > b", opset=18) for name in REDUCED),
    *(
        Case(f"Reduce{name} a i:-1 > s ; Mul a s > b", OVER_UNITS.get(name, ()), name in OVER_UNITS, opset=18)
        for name in REDUCED
    ),
    Case("ReduceMax a > b axes=[1] keepdims=0", opset=11),
    Case("ReduceSum a > s ; Mul a s > b"),
    Case("ReduceSum a > b noop_with_empty_axes=1"),
    Case("LogSoftmax a > b axis=1"),
    never("Softmax a > b"),
    never("Softmax a > b axis=1", opset=11),
    never("Softmax a > b axis=2", opset=11),
    Case("ArgMin a > i axis=1 keepdims=0 ; Cast i > b to=1"),
    never("ArgMax a > i axis=-1 ; Cast i > s to=1 ; Mul a s > b"),
    Case("CumSum a n:1 > b"),
    never("CumSum a n:2 > b"),
    never("CumSum a n:1 > b reverse=1"),
    Case("TopK a i:2 > b n axis=1"),
    never("TopK a i:{h} > b n", taken="h"),
    # where numbers stand
    Case("Reshape a i:10,-1 > c ; Relu c > d ; Reshape d i:2,5,{w} > b"),
    Case("ReduceMax a i:-1 > s ; Expand s i:2,5,{w} > c ; Add a c > b"),
    Case("Expand a i:1 > b"),
    Case("Tile a i:1,2,1 > b"),
    Case("Tile a i:1,1,1 > b"),
    Case("Tile a i:1,1,2 > b", taken="twice"),
    Case("Relu a > r ; Concat a r > b axis=-1", taken="twice"),
    Case("Concat a > b axis=1"),
    Case("Split a > c d axis=-1 num_outputs=2 ; Mul c d > b", taken="h"),
    Case("Split a i:1,4 > c d axis=1 ; Concat d c > b axis=1"),
    Case("Split a i:1,{less} > c d axis=2 ; Concat d c > b axis=2"),
    Case(f"SplitToSequence a n:{{h}} > s axis=2 ; {PARTS} ; Mul c d > b", taken="h"),
    Case(f"SplitToSequence a i:1,4 > s axis=1 ; {PARTS} ; Concat d c > b axis=1"),
    Case(f"SplitToSequence a i:1,{{less}} > s axis=2 ; {PARTS} ; Concat d c > b axis=2"),
    Case("Slice a i:0 i:9 i:1 i:2 > b"),
    Case("Slice a i:-1 i:-99 i:1 i:-1 > b"),
    Case("Slice a i:1 i:2 > b"),
    Case("Slice a i:0 i:{h} i:2 > b", taken="h"),
    never("Slice a i:-1 i:-99 i:2 i:-1 > b"),
    never("Slice a i:-1 i:-99 i:1 i:-2 > b"),
    never("Slice a i:0 i:99 i:2 i:2 > b", taken="h"),
    Case("Pad a i:0,0,0,0,0,0 > b"),
    Case("Pad a i:0,1,0,0,2,0 f:0.5 > b"),
    Case("Pad a i:1,2 - i:-2 > b"),
    Case("Pad a i:0,0,1,0,0,1 > b", taken="more"),
    Case("Pad a i:0,-1,0,0,-1,0 > b"),
    Case("Pad a i:0,0,1,1,0,0,1,1 > b mode=edge", given=MAPS),
    Case("Pad a i:0,0,1,1,0,0,1,1 > b mode=wrap", given=MAPS),
    Case("Pad a i:0,0,-1,-1,0,0,-1,-1 > b", given=MAPS),
    Case("Pad a i:0,1,0,0,0,1,0,0 > c ; Conv c t:{w},{more},3,3 > b", given=MAPS),
    Case("DepthToSpace a > b blocksize=2", given=MAPS, taken="q"),
    Case("DepthToSpace a > b blocksize=2 mode=CRD", given=MAPS, taken="q"),
    Case("SpaceToDepth a > b blocksize=2", given=MAPS, taken="four"),
    Case("MatMul a t:{w},5 > s ; Trilu s n:-1 > u upper=0 ; MatMul u a > b"),
    never("Trilu a > b"),
    Case("Gather a i:1,2 > b axis=1"),
    Case("Gather a i:-2,-1 > b axis=1"),
    Case("Gather a i:-1,0 > b axis=1"),
    Case("Gather a i:3,0,3 > b axis=1"),
    Case("Gather a i: > b axis=1"),
    Case("Gather a n:-1 > b axis=1"),
    Case("ArgMax a > i axis=1 ; GatherElements a i > b axis=1"),
    Case("Resize a - m:scales > b", given=MAPS),
    never("Resize a - m:units > b", given=MAPS, taken="twice"),
    # number by number
    Case("Swish a > b", opset=24),
    never("Swish a > b alpha=2.0", opset=24),
    Case("Celu a > b alpha=0.5"),
    Case("ThresholdedRelu a > b alpha=0.3"),
    never("Selu a > b alpha=1.0"),
    never("Selu a > b gamma=2.0"),
    Case("HardSigmoid a > b alpha=0.3 beta=0.4"),
    Case("Softsign a > b"),
    Case("Clip a - f:0.3 > b"),
    Case("Clip a > b"),
    never("ReduceMax x > s keepdims=0 ; Clip a s > b"),
    Case("Mod a f:0.3 > b fmod=1"),
    Case("Pow f:2 a > b"),
    Case("Div f:1 a > b"),
    Case("Div f:2 a > b"),
    Case("Sub f:1 a > b"),
    Case("Sub t:5,{w} a > b"),
    Case("Abs a > c ; Pow c t:{w} > b"),
    Case("Abs a > c ; Sqrt c > d ; Reciprocal d > b"),
    Case("PRelu a t:1 > b", given=MAPS),
    Case("PRelu a t:{w},1,1 > b", given=MAPS),
    never("PRelu a t:{w} > b"),
    *(Case(f"Relu a > c ; Neg a > d ; {name} a c d > b") for name in ("Sum", "Max", "Min", "Mean")),
    Case("Greater a f:0.1 > c ; Where c a f:-0.5 > b"),
    Case("Less f:0.1 a > c ; Less a f:0.5 > d ; And c d > e ; Not e > f ; Where f f:-0.5 a > b"),
    Case("Where m:late a t:5,{w} > b"),
    Case("Cast a > c to=7 ; Cast c > b to=1"),
    Case("CastLike a n:1 > c ; Cast c > b to=1"),
    Case("Relu a > r ; Log r > l ; IsInf l > f ; Not f > n ; Cast n > b to=1"),
    # layers
    Case("LayerNormalization a t:{w} t:{w} > b"),
    never("LayerNormalization a t:{w} t:{w} > c m r ; Mul c m > b"),
    never("LayerNormalization a t:1 > b"),
    Case("RMSNormalization a t:{w} > b", opset=23),
    Case("InstanceNormalization a t:{w} t:{w} > b", given=MAPS),
    Case("GroupNormalization a t:{w} t:{w} > b num_groups=2", (DOUBLE,), given=MAPS, opset=21),
    never("GroupNormalization a t:2 t:2 > b num_groups=2", given=MAPS, opset=18),
    Case("BatchNormalization a t:{w} t:{w} t:{w} p:{w} > b", given=MAPS),
    Case("ConvTranspose a t:{w},{w},2,2 t:{w} > b strides=[2,2]", given=MAPS),
    Case("ConvTranspose a t:{w},{w},3,3 > b strides=[2,2] pads=[1,0,0,1] output_padding=[1,0]", given=MAPS),
    Case("ConvTranspose a t:{w},{h},3,3 > b group=2", given=MAPS),
    never("ConvTranspose a t:{w},{w},2,2 > b strides=[2,2] output_shape=[16,16]", given=MAPS),
    Case("ReduceMax a i:1 > c keepdims=0 ; Transpose c > d ; Gemm d t:{w},{w} t:{w} > b transA=1"),
    never("ReduceMax a i:1 > c keepdims=0 ; Gemm c c > e transB=1 ; Gemm e c > b alpha=0.5"),
    # attention
    Case(
        f"{HEADS} ; {APART} ; Attention q.4 k.4 v.4 > o ; Transpose o > r perm=[0,2,1,3] ; {TOGETHER}",
        opset=23,
    ),
    *(
        Case(f"{HEADS} ; Attention q k v {mask} > b q_num_heads=2 kv_num_heads=2 {more}", opset=23)
        for mask, more in (
            ("", "scale=0.3"),
            ("m:causal", ""),
            ("m:allowed", ""),
            ("m:anti", ""),
            ("m:nothing", ""),
            ("m:any", "is_causal=1"),
        )
    ),
    Case(f"{ONE_HEAD} ; Attention q k v > b q_num_heads=2 kv_num_heads=1", opset=23),
    Case(f"{HEADS} ; Attention q k v > b q_num_heads=2 kv_num_heads=2 softcap=1.0", (), opset=23),
    Case(f"{HEADS} ; {SCORES} ; {WEIGHED.format('s')}"),
    *(
        Case(f"{HEADS} ; {SCORES} ; Add s m:{mask} > m ; {WEIGHED.format('m')}")
        for mask in ("causal", "anti", "first", "nothing")
    ),
]


def same(one: Array, other: Array) -> bool:
    return one.shape == other.shape and np.allclose(one, other, rtol=1e-3, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.text} {case.opset}")
def test_a_width_grows_where_it_may_and_then_exactly(case: Case) -> None:
    source = case.model(NARROW, 0)
    made = computed(source, case.inputs())
    graph = describe(source)
    units = {
        part.space
        for axis in graph.tensors["bias"].axes
        for part in leaves(axis.of)
        if isinstance(part, Atom)
    }
    assert any(graph.spaces[space].free for space in units) == case.free
    for width in (NARROW, WIDER, DOUBLE):
        report = transfer(source, case.model(width, 5))
        assert report.exact == (width in (NARROW, *case.exact)), (width, report.plan.doubts)
        assert not report.exact or same(computed(report.model, case.inputs()), made), width


SUMMED = "ReduceSum s i:1 > b keepdims=0"
PARTED = "ReduceMax c i:1 > e ; Add e d > f ; ReduceSum f i:1 > b"
TRIANGLE = "MatMul a t:{w},5 > s ; Trilu s n:#1 > u upper=#2 ; MatMul u a > b"
MASKED = f"{HEADS} ; {SCORES} ; Add s m:#1 > m ; {WEIGHED.format('m')}"
SIDES = "Relu a > r ; Einsum a r > s equation=#1 ; Einsum s a > b equation=bqk,bkd->bqd"
INFINITE = "Relu a > r ; Log r > l ; IsInf l > f #1 ; Cast f > b to=1"
PAIRS = [  # a text, and two ways to fill it in
    ("Cast a > c to=#1 ; Cast c > b to=1", "7", "1"),
    ("Cast a > c to=#1 ; Cast c > b to=1", "9", "7"),
    ("Cast a > i to=7 ; Cast i > c to=#1 ; Cast c > b to=1", "9", "7"),
    ("CastLike a #1 > c ; Cast c > b to=1", "n:1", "f:1"),
    ("Selu a > b gamma=#1", "1.0507", "2.0"),
    (INFINITE, "detect_negative=0", "detect_negative=1"),
    (INFINITE, "detect_positive=0", "detect_negative=0"),
    (INFINITE, "detect_positive=0", "detect_positive=0 detect_negative=0"),
    ("Sign a > c ; ArgMax c > i axis=1 keepdims=0 select_last_index=#1 ; Cast i > b to=1", "0", "1"),
    ("#1 a > i axis=1 keepdims=0 ; Cast i > b to=1", "ArgMin", "ArgMax"),
    ("Gather a #1 > b axis=1", "i:-1,0", "i:0,-1"),
    ("Gather a #1 > b axis=1", "i:3,0", "i:0,3"),
    ("Gather a #1 > b axis=1", "n:0", "n:2"),
    ("Mod a #1 > b fmod=1", "f:0.3", "f:0.4"),
    (TRIANGLE, "-1 0", "1 0"),
    (TRIANGLE, "0 0", "0 1"),
    ("SplitToSequence a #1 > s axis=1 ; SequenceAt s n:1 > b", "i:1,2,2", "i:2,2,1"),
    ("#1 a i:1 > b", "ReduceL1", "ReduceL2"),
    ("Pad a i:0,1,0,0,2,0 #1 > b", "f:0.5", "f:0.6"),
    ("Pad a #1 > b", "i:0,-1,0,0,0,0", "i:0,0,0,0,-1,0"),
    (SIDES, "bqd,bkd->bqk", "bqd,bkd->bkq"),
    ("Where #1 a f:0 > b", "m:late", "m:later"),
    ("TopK a i:2 > b n axis=1 largest=#1", "0", "1"),
    ("LayerNormalization a t:{w} > b epsilon=#1", "1e-5", "0.5"),
    (MASKED, "causal", "first"),
    (MASKED, "causal", "anti"),
    (MASKED, "causal", "nothing"),
    ("Relu a > r ; Concat #1 > b axis=1", "a r", "r a"),
    (f"Tile a #1 > s ; {SUMMED}", "i:1,2,1", "i:1,3,1"),
    (f"ReduceMax a i:1 > c ; Expand c #1 > s ; {SUMMED}", "i:1,5,1", "i:1,3,1"),
    (f"Gather a #1 > s axis=1 ; {SUMMED}", "i:-1,0", "i:-1,0,1"),
    (f"Split a #1 > c d axis=1 ; {PARTED}", "i:1,4", "i:2,3"),
]


def filled(text: str, words: str) -> Case:
    """A text with words put in for #1, #2 ...; all of them for #1 if there is no other."""
    parts = words.split() if "#2" in text else [words]
    for number, word in enumerate(parts, start=1):
        text = text.replace(f"#{number}", word)
    return Case(text)


@pytest.mark.parametrize(("text", "one", "other"), PAIRS)
def test_what_differs_is_not_promised_and_what_is_the_same_is(text: str, one: str, other: str) -> None:
    for first, second in ((one, other), (other, one)):
        source = filled(text, first).model(NARROW, 0)
        given = filled(text, first).inputs()
        made = computed(source, given)
        assert not same(computed(filled(text, second).model(NARROW, 0), given), made), "they do not differ"
        alike = transfer(source, filled(text, first).model(NARROW, 5))
        assert alike.exact, alike.plan.doubts
        assert same(computed(alike.model, given), made)
        assert not transfer(source, filled(text, second).model(NARROW, 5)).exact
