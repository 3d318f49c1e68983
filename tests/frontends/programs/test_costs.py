"""Costs: what a step takes is counted, also where its results do not show it."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkeeper.frontends.programs.costs import Cost, cost
from modelkeeper.weights import Array


def t(*shape: int, dtype: str = "float32") -> Array:
    return np.broadcast_to(np.zeros((), dtype), shape)  # no memory, whatever the shape


def of(operation: str, result: Array, **given: Any) -> Cost:
    return cost(operation, given, [result])


def test_products_count_what_is_summed() -> None:
    assert of("linear.default", t(8, 20), input=t(8, 10), weight=t(20, 10)).work == 8 * 10 * 20
    assert of("bmm.default", t(2, 4, 8), self=t(2, 4, 6), mat2=t(2, 6, 8)) == Cost(2 * 4 * 6 * 8, 0)
    assert of("matmul.default", t(64, 4, 8), self=t(64, 4, 6), other=t(1, 6, 8)).buffers > 0


def test_convolutions_count_their_windows() -> None:
    given = {"input": t(2, 4, 8, 8), "weight": t(6, 4, 3, 3)}
    made = of("conv2d.default", t(2, 6, 6, 6), **given)
    assert made.work == 2 * 6 * 36 * 4 * 9
    assert made.buffers == 36 * 4 * 9  # of one example
    double = {"input": t(2, 4, 8, 8, dtype="float64"), "weight": t(6, 4, 3, 3, dtype="float64")}
    assert of("conv2d.default", t(2, 6, 6, 6), **double).buffers == 2 * 36 * 4 * 9
    turned = of("conv_transpose2d.input", t(2, 6, 10, 10), input=t(2, 4, 8, 8), weight=t(4, 6, 3, 3))
    assert turned.work == 2 * 4 * 64 * 6 * 9


def test_attention_holds_all_scores_unless_it_goes_block_by_block() -> None:
    flat, blocks = t(1, 32768, 1), t(1, 1, 32768, 1)
    name = "scaled_dot_product_attention.default"
    assert of(name, flat, query=flat, key=flat, value=flat).buffers >= 2**30
    assert of(name, blocks, query=blocks, key=blocks, value=blocks).buffers < 2**26
    assert of(name, blocks, query=blocks, key=blocks, value=blocks).work >= 2**31


def test_what_is_read_counts_where_little_is_made() -> None:
    assert of("sum.default", t(), self=t(2**15, 2**15)).work >= 2**30
    pooled = of("adaptive_avg_pool2d.default", t(1, 4, 1, 1), self=t(1, 4, 64, 64), output_size=[1, 1])
    assert pooled.work >= 4 * 64 * 64
    assert of("avg_pool2d.default", t(1, 1, 9, 9), self=t(1, 1, 16, 16), kernel_size=[8, 8]).work >= 81 * 64
    recurrent = {"input": t(50, 2, 8), "hx": [t(1, 2, 4)] * 2, "params": [t(16, 8), t(16, 4), t(16), t(16)]}
    assert of("lstm.input", t(50, 2, 4), **recurrent).work >= 50 * 2 * (16 * 8 + 16 * 4)
    assert of("_fft_c2c.default", t(1024), self=t(1024), dim=[0]).work >= 1024 * 10


RING = "ab,bc,cd,da->"


def test_sums_of_products_count_all_pairs() -> None:
    given = [t(64, 64)] * 4
    made = of("einsum.default", t(), equation=RING, tensors=given)
    assert 2 * 64**3 <= made.work <= 4 * 64**3 + 64**2
    outer = of("einsum.default", t(), equation="ab,cd,ac,bd->", tensors=given)
    assert outer.buffers >= 64**4
    told = of("einsum.default", t(), equation="ab,cd,ac,bd->", tensors=given, path=[0, 2, 0, 1, 0, 1])
    assert told.buffers < 64**4  # in another order they are never all there


LABELS = "abcd"
TERM = st.permutations(LABELS).flatmap(lambda p: st.integers(1, 3).map(lambda n: "".join(p[:n])))
TERMS = st.lists(TERM, min_size=1, max_size=3)


@settings(max_examples=60)
@given(TERMS, st.data())
def test_an_equation_that_runs_is_counted(terms: list[str], data: st.DataObject) -> None:
    """Law: what PyTorch computes has a cost, and no less than its operands and results are large."""
    known = sorted(set("".join(terms)))
    wanted = "".join(data.draw(st.permutations(known)))[: data.draw(st.integers(0, len(known)))]
    equation = ",".join(terms) + data.draw(st.sampled_from(["", f"->{wanted}"]))
    sizes = dict(zip(LABELS, (2, 3, 4, 5), strict=True))
    tensors = [torch.ones([sizes[label] for label in term]) for term in terms]
    result = torch.einsum(equation, *tensors)
    made = cost("einsum.default", {"equation": equation, "tensors": tensors}, [result])
    assert made.work >= max(tensor.numel() for tensor in tensors)
    assert len(terms) == 1 or made.work >= result.numel()


@pytest.mark.parametrize(
    ("equation", "path"),
    [("ab", None), ("ab,bc,cd", None), ("a.b,bc", None), ("abc,bc", None), (3, None), ("ab,1c", None)]
    + [("ab,bc", path) for path in ([0], [0, 0], [0, 2], [0, 1, 0, 1], [-1, 0])],
)
def test_equations_and_paths_that_make_no_sense_are_refused(equation: Any, path: list[int] | None) -> None:
    with pytest.raises(ValueError, match=r"equation|term|path"):
        of("einsum.default", t(), equation=equation, tensors=[t(4, 4), t(4, 4)], path=path)


def test_an_ellipsis_stands_for_the_axes_that_are_left() -> None:
    made = [
        of("einsum.default", t(), equation=equation, tensors=[t(7, 4, 5), t(7, 5, 6)]).work
        for equation in ("...ij,...jk->...ik", "nij,njk->nik", "...ij,...jk")
    ]
    assert all(first == second for first, second in itertools.pairwise(made))
    assert made[0] >= 7 * 4 * 5 * 6
