"""Gather: against plain NumPy, its laws, and wrong use."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from modelkeeper import _native
from modelkeeper.errors import CannotGather
from modelkeeper.transform import gather as transform_gather
from modelkeeper.transform.gather import AxisMap, gather
from modelkeeper.weights import Array

SCALABLE = [np.dtype(name) for name in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)]
MOVABLE = [
    np.dtype(name)
    for name in (
        *(np.bool_, np.int8, np.uint16, np.int32, np.int64, np.complex64, np.complex128),
        *(ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4),
    )
]
Case = tuple[Array, list[AxisMap], tuple[int, ...]]

seeds = st.integers(0, 2**32 - 1)
odd_numbers = pytest.mark.filterwarnings("ignore:(overflow|invalid value|underflow):RuntimeWarning")


def numbers(dtype: np.dtype[Any], shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Random bits: every number there is, infinities and NaN included."""
    if dtype in (np.bool_, ml_dtypes.int4):
        return rng.integers(2, size=shape).astype(dtype)
    raw = rng.integers(256, size=(*shape, dtype.itemsize), dtype=np.uint8)
    return raw.view(dtype).reshape(shape)


def reference(source: Array, maps: list[AxisMap]) -> Array:
    """The same by np.take along each axis, and one multiplication."""
    result, factor, hole = source, np.ones([1] * source.ndim), np.zeros([1] * source.ndim, bool)
    for axis, axis_map in enumerate(maps):
        along = [-1 if k == axis else 1 for k in range(source.ndim)]
        if axis_map.index is not None:
            hole = hole | (axis_map.index == -1).reshape(along)
            if result.shape[axis] == 0:  # there is nothing to take: all are holes, whatever is there
                result = np.zeros(
                    [len(axis_map.index) if k == axis else n for k, n in enumerate(result.shape)]
                )
            result = np.take(result, np.maximum(axis_map.index, 0), axis)
        if axis_map.factor is not None:
            factor = factor * axis_map.factor.reshape(along)
    if any(axis_map.factor is not None for axis_map in maps):
        wide = np.float32 if source.dtype.itemsize == 2 else np.float64
        result = result.astype(wide) * factor.astype(wide)
    return np.where(hole, 0, result.astype(source.dtype)).astype(source.dtype)


def assert_same(result: Array, expected: Array) -> None:
    """Equal but for one unit in the last place, as factors may be multiplied in another order."""
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    if result.dtype not in SCALABLE:
        np.testing.assert_array_equal(bits(result), bits(expected))
        return
    limits = ml_dtypes.finfo(result.dtype)
    np.testing.assert_allclose(
        result.astype(np.float64),
        expected.astype(np.float64),
        rtol=float(limits.eps) * 2,
        atol=float(limits.smallest_subnormal),
    )


def bits(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def index(*entries: int) -> AxisMap:
    return AxisMap(np.array(entries, np.int64))


def widen(old: int, new: int, seed: int = 0) -> AxisMap:
    rng = np.random.default_rng(seed)
    return AxisMap(np.concatenate([np.arange(old), rng.integers(old, size=new - old)]))


def narrow(old: int, new: int) -> AxisMap:
    return AxisMap(np.sort(np.random.default_rng(0).permutation(old)[:new]))


def shared(axis_map: AxisMap) -> AxisMap:
    assert axis_map.index is not None
    share = np.random.default_rng(1).uniform(0.1, 1.0, len(axis_map.index))
    return AxisMap(axis_map.index, np.where(share < 0.4, 1.0, share))


@st.composite
def axis_maps(draw: st.DrawFn, available: int, most: int, factors: bool) -> tuple[AxisMap, int]:
    """A map from an axis of so many units, random or as real ones are, and how many it leads to."""
    rng = np.random.default_rng(draw(seeds))
    kind = draw(st.sampled_from(["identity", "random", "widen", "narrow", "first", "centre"]))
    chosen: Array | None = None
    if kind == "random":
        chosen = rng.integers(-1, available, size=draw(st.integers(0, most)))
    elif kind == "widen" and available:
        chosen = widen(available, draw(st.integers(available, max(available, most)))).index
    elif kind == "narrow":
        chosen = narrow(available, draw(st.integers(0, available))).index
    elif kind == "first":
        chosen = np.arange(draw(st.integers(0, available)))
    elif kind == "centre":
        chosen = np.pad(np.arange(available), draw(st.integers(0, 2)), constant_values=-1)
    size = available if chosen is None else len(chosen)
    scaled = factors and draw(st.booleans())
    factor = np.where(rng.random(size) < 0.5, 1.0, rng.normal(size=size)) if scaled else None
    return AxisMap(chosen, factor), size


@st.composite
def gathers(draw: st.DrawFn, dtypes: list[np.dtype[Any]]) -> Case:
    """A source, a map for each axis, and the shape they lead to: many short axes, or few long ones."""
    dtype = draw(st.sampled_from(dtypes))
    shape, few = draw(hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=5)), draw(st.booleans())
    if shape and few:
        shape = (*shape[-2:-1], draw(st.integers(0, 200)))
    maps = [draw(axis_maps(size, 300 if len(shape) < 3 else 7, dtype in SCALABLE)) for size in shape]
    source = numbers(dtype, shape, np.random.default_rng(draw(seeds)))
    return source, [axis_map for axis_map, _ in maps], tuple(size for _, size in maps)


@given(gathers(SCALABLE + MOVABLE))
@odd_numbers
def test_a_gather_takes_along_each_axis_and_multiplies(case: Case) -> None:
    source, maps, shape = case
    assert_same(gather(source, maps, shape), reference(source, maps))


# Large enough for tiles, for threads, and for every way a row may be made.
LARGE: dict[str, tuple[tuple[int, ...], Callable[[], list[AxisMap]]]] = {
    "conv wider": ((96, 80, 3, 3), lambda: [widen(96, 144), shared(widen(80, 120)), AxisMap(), AxisMap()]),
    "conv narrower": ((160, 200, 3, 3), lambda: [narrow(160, 130), narrow(200, 140), AxisMap(), AxisMap()]),
    "conv with larger kernel": (
        (90, 70, 3, 3),
        lambda: [AxisMap(), shared(widen(70, 71)), index(-1, 0, 1, 2, -1), index(-1, 0, 1, 2, -1)],
    ),
    "linear wider": ((300, 400), lambda: [shared(widen(300, 450)), shared(widen(400, 600, 1))]),
    "linear narrower": ((900, 500), lambda: [narrow(900, 700), narrow(500, 410)]),
    "rows longer than a tile": ((30, 9_000), lambda: [widen(30, 40), shared(widen(9_000, 9_500))]),
    "rows alone": ((900, 700), lambda: [shared(widen(900, 950)), AxisMap()]),
    "embedding": ((5_000, 64), lambda: [AxisMap(), widen(64, 96)]),
    "one long axis": ((300_000,), lambda: [shared(widen(300_000, 400_000))]),
    "first column": ((300_000, 3), lambda: [AxisMap(), index(0)]),
    "copy": ((700, 30, 30), lambda: [AxisMap(), AxisMap(), AxisMap()]),
    "holes": (
        (500, 600),
        lambda: [widen(500, 501), AxisMap(np.pad(np.arange(0, 600, 2), 200, constant_values=-1))],
    ),
}


@pytest.mark.parametrize("dtype", [*SCALABLE, np.dtype(np.int8), np.dtype(np.complex128)], ids=str)
@pytest.mark.parametrize("name", LARGE)
@odd_numbers
def test_large_tensors_are_the_same_with_any_number_of_threads(name: str, dtype: np.dtype[Any]) -> None:
    shape, make = LARGE[name]
    maps = [axis_map if dtype in SCALABLE else AxisMap(axis_map.index) for axis_map in make()]
    source = numbers(dtype, shape, np.random.default_rng(0))
    expected = reference(source, maps)
    one = gather(source, maps, expected.shape, threads=1)
    assert_same(one, expected)
    for threads in (2, 5, None):
        np.testing.assert_array_equal(bits(gather(source, maps, expected.shape, threads=threads)), bits(one))


@given(gathers(SCALABLE + MOVABLE))
def test_identities_copy_bit_for_bit(case: Case) -> None:
    source = case[0]
    ones = [np.ones(size) if source.dtype in SCALABLE else None for size in source.shape]
    for maps in (
        [AxisMap() for _ in source.shape],
        [AxisMap(np.arange(size), one) for size, one in zip(source.shape, ones, strict=True)],
    ):
        np.testing.assert_array_equal(bits(gather(source, maps, source.shape)), bits(source))


@given(st.data(), gathers(SCALABLE + MOVABLE))
@odd_numbers
def test_two_gathers_are_one_by_the_composed_maps(data: st.DataObject, case: Case) -> None:
    source, first, shape = case
    chosen = [data.draw(axis_maps(size, 9, factors=False)) for size in shape]
    second, final = [axis_map for axis_map, _ in chosen], tuple(size for _, size in chosen)
    composed = []
    for size, a, b in zip(shape, first, second, strict=True):
        at = np.arange(size) if b.index is None else b.index
        through = np.append(np.arange(size) if a.index is None else a.index, -1)[at]  # holes stay holes
        composed.append(AxisMap(through, None if a.factor is None else np.append(a.factor, 1.0)[at]))
    twice = gather(gather(source, first, shape), second, final)
    assert_same(gather(source, composed, final), twice)


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)], ids=str)
@pytest.mark.parametrize("factor", [1.5, 0.1, -2.0, 3e-5, 1e-8, 1e4, np.inf, np.nan])
@odd_numbers
def test_every_half_is_rounded_to_the_nearest(dtype: np.dtype[Any], factor: float) -> None:
    every = np.arange(2**16, dtype=np.uint16).view(dtype)
    result = gather(every, [AxisMap(factor=np.full(2**16, factor))], every.shape)
    expected = (every.astype(np.float32) * np.float32(factor)).astype(dtype)
    number = ~np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(result.astype(np.float32)), ~number)
    np.testing.assert_array_equal(result[number].view(np.uint16), expected[number].view(np.uint16))


def test_no_nan_of_a_factor_is_rounded_to_a_number() -> None:
    odd = np.full(40, 0x7FFF_FFFF_FFFF_FFFF, np.uint64).view(np.float64)
    result = gather(np.ones(40, ml_dtypes.bfloat16), [AxisMap(factor=odd)], (40,))
    assert np.isnan(result.astype(np.float32)).all()


def test_a_hole_is_zero_whatever_its_factor() -> None:
    source = np.full((3, 40), np.nan, np.float32)
    maps = [
        AxisMap(np.array([0, -1]), np.array([np.inf, np.inf])),
        AxisMap(np.tile([0, -1, -1], 40), np.full(120, np.nan)),
    ]
    result = gather(source, maps, (2, 120))
    assert not result[1].any()
    assert not result[0].reshape(40, 3)[:, 1:].any()
    assert np.isnan(result[0, ::3]).all()


def test_sources_may_lie_in_memory_in_any_way() -> None:
    plain = np.arange(24, dtype=np.float32).reshape(4, 6)
    maps, shape = [index(3, 0, -1), AxisMap(factor=np.full(6, 0.5))], (3, 6)
    expected = gather(plain, maps, shape)
    read_only = plain.copy()
    read_only.flags.writeable = False
    spread = np.zeros((4, 12), np.float32)
    spread[:, ::2] = plain
    for source in (np.asfortranarray(plain), plain.astype(">f4"), read_only, spread[:, ::2]):
        result = gather(source, maps, shape)
        assert result.dtype == np.float32
        np.testing.assert_array_equal(result, expected)
    backwards = AxisMap(np.arange(6)[::-1], np.arange(12.0)[::2])  # maps too
    np.testing.assert_array_equal(
        gather(plain, [AxisMap(), backwards], (4, 6)), plain[:, ::-1] * np.arange(12.0)[::2]
    )


def test_nothing_can_be_taken_from_nothing_but_zeros() -> None:
    assert gather(np.array(7.0, np.float32), [], ()) == 7.0
    assert gather(np.empty((0, 3), np.int64), [AxisMap(), AxisMap()], (0, 3)).shape == (0, 3)
    np.testing.assert_array_equal(
        gather(np.empty((0, 3)), [index(-1, -1), AxisMap()], (2, 3)), np.zeros((2, 3))
    )
    assert gather(np.ones((2, 3)), [index(), AxisMap()], (0, 3)).shape == (0, 3)


def test_out_is_filled_in_place() -> None:
    out = np.full((2, 2), 7.0)
    assert gather(np.eye(2), [index(1, 0), AxisMap()], (2, 2), out=out) is out
    np.testing.assert_array_equal(out, [[0, 1], [1, 0]])


SOURCE = np.arange(6, dtype=np.float32).reshape(2, 3)
SAME = [AxisMap(), AxisMap()]


@pytest.mark.parametrize(
    ("maps", "shape", "message"),
    [
        ([AxisMap()], (2, 3), r"shape \(2, 3\) needs 2 maps"),
        (SAME, (6,), r"not 2 and \(6,\)"),
        (SAME, (2, -3), "negative size"),
        (SAME, (2, 4), "axis 1: the result has 4 units and the source 3, so it needs an index"),
        ([AxisMap(), index(0, 1)], (2, 3), "axis 1: the index has 2 entries, the result 3 units"),
        ([index(0, 2), AxisMap()], (2, 3), "axis 0: entry 1 of the index is 2, the source has 2 units"),
        ([index(-2, 0), AxisMap()], (2, 3), "axis 0: entry 0 of the index is -2"),
        ([AxisMap(factor=np.ones(3)), AxisMap()], (2, 3), "axis 0: there are 3 factors, the result has 2"),
    ],
)
def test_maps_that_do_not_fit_are_refused_before_anything_is_written(
    maps: list[AxisMap], shape: tuple[int, ...], message: str
) -> None:
    out = np.full([max(0, size) for size in shape], 7, np.float32)
    with pytest.raises(CannotGather, match=message):
        gather(SOURCE, maps, shape, out=out)
    assert (out == 7).all()


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.empty((3, 2), np.float32), r"shape \(2, 3\); it is of float32, shape \(3, 2\)"),
        (np.empty((2, 3)), "of float32, shape .* it is of float64"),
        (np.empty((3, 2), np.float32).T, "C-contiguous"),
        (np.broadcast_to(np.float32(0), (2, 3)), "read-only"),
        (SOURCE, "overlaps"),
    ],
)
def test_an_out_that_does_not_fit_is_refused(out: Array, message: str) -> None:
    with pytest.raises(CannotGather, match=message):
        gather(SOURCE, SAME, (2, 3), out=out)


@pytest.mark.parametrize("dtype", MOVABLE, ids=str)
def test_only_floats_take_factors(dtype: np.dtype[Any]) -> None:
    with pytest.raises(CannotGather, match=rf"{dtype} takes no factors"):
        gather(np.zeros(2, dtype), [AxisMap(factor=np.ones(2))], (2,))


@pytest.mark.parametrize("dtype", [object, "U3", "M8[s]", [("a", "i4")], ml_dtypes.float8_e8m0fnu])
def test_what_is_no_number_with_a_zero_is_refused(dtype: Any) -> None:
    with pytest.raises(CannotGather, match="cannot be gathered"):
        gather(np.empty(2, dtype), [AxisMap()], (2,))


def test_a_map_is_checked_when_it_is_built() -> None:
    with pytest.raises(CannotGather, match="index must have one axis of int64, not 1 of int32"):
        AxisMap(np.zeros(3, np.int32))
    with pytest.raises(CannotGather, match="factor must have one axis of float64, not 2"):
        AxisMap(factor=np.ones((2, 2)))
    with pytest.raises(CannotGather, match="3 entries of index, but 2 factors"):
        AxisMap(np.zeros(3, np.int64), np.ones(2))
    with pytest.raises(CannotGather, match="2 entries of index, but 3 factors"):
        AxisMap(np.zeros(2, np.int64), np.ones(3))


def test_there_is_at_least_one_thread() -> None:
    with pytest.raises(CannotGather, match="threads is 0"):
        gather(SOURCE, SAME, (2, 3), threads=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "float8"}, "no gather for float8 of 4 bytes"),
        ({"itemsize": 3}, "no gather"),
        ({"sizes": [3]}, "8 bytes, its shape says at least 12"),
        ({"strides": [2]}, "8 bytes, its shape says at least 12"),
        ({"strides": [-1]}, "a stride is negative"),
        ({"strides": [2**62], "sizes": [2**62]}, "larger than memory"),
        ({"strides": []}, "same number of axes"),
        ({"shape": [-2]}, "negative"),
        (
            {"sizes": [2**62] * 2, "strides": [2**62, 1], "shape": [2, 1]}
            | {"indices": [None] * 2, "factors": [None] * 2},
            "memory",
        ),
        ({"shape": [1] * 17}, "17 axes"),
        ({"indices": []}, "same number of axes"),
        ({"kind": "bits", "factors": [np.ones(2)]}, "take no factor"),
    ],
)
def test_the_native_function_checks_what_it_is_given(changes: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {
        "source": np.zeros(8, np.uint8),
        "out": np.zeros(8, np.uint8),
        "kind": "float32",
        "itemsize": 4,
        "sizes": [2],
        "strides": [1],
        "shape": [2],
        "indices": [None],
        "factors": [None],
    }
    with pytest.raises(ValueError, match=message):
        _native.gather(**{**good, **changes})


@given(gathers(SCALABLE + MOVABLE), st.data())
@odd_numbers
def test_axes_that_lie_in_another_order_are_moved_in_the_same_pass(case: Case, data: st.DataObject) -> None:
    source, maps, shape = case
    order = data.draw(st.permutations(range(source.ndim)))
    made = gather(source.transpose(order), [maps[n] for n in order], [shape[n] for n in order], threads=2)
    assert made.flags.c_contiguous
    assert_same(made, gather(source, maps, shape).transpose(order))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.complex128])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_large_tensors_are_moved_by_any_number_of_threads(dtype: Any, threads: int) -> None:
    source = numbers(np.dtype(dtype), (130, 67, 3, 5), np.random.default_rng(0))
    maps = [widen(130, 201), narrow(67, 41), AxisMap(), index(-1, 0, 1, 2, 3, 4, -1)]
    expected = reference(source, maps)
    for order in ((2, 3, 1, 0), (1, 0, 3, 2), (3, 2, 0, 1)):
        made = gather(
            source.transpose(order),
            [maps[n] for n in order],
            [expected.shape[n] for n in order],
            threads=threads,
        )
        np.testing.assert_array_equal(bits(made), bits(expected.transpose(order)))


@pytest.mark.parametrize(
    "view",
    [
        SOURCE[::-1],
        np.broadcast_to(SOURCE[0], (4, 3)),
        np.arange(24, dtype=np.float32).reshape(4, 6)[1:3, ::2],
        np.arange(24, dtype=np.float32).reshape(4, 6)[::2, 1:4].T,
        np.arange(10, dtype=np.uint8)[1:9].view(np.float32).reshape(2, 1),
        np.frombuffer(bytes(range(20)), np.dtype([("a", "u1"), ("b", "<f4")]))["b"].reshape(2, 2),
    ],
)
def test_any_view_can_be_a_source(view: Array) -> None:
    same = gather(view, [AxisMap(), AxisMap()], view.shape)
    np.testing.assert_array_equal(bits(same), bits(view))
    twice = gather(view, [AxisMap(), widen(view.shape[1], 7)], (view.shape[0], 7))
    np.testing.assert_array_equal(bits(twice), bits(view[:, widen(view.shape[1], 7).index]))


@given(
    st.sampled_from(SCALABLE + MOVABLE),
    st.lists(st.integers(-3, 12), min_size=1, max_size=200),
    st.integers(1, 40),
    seeds,
)
def test_elements_that_lie_near_each_other_come_in_any_order(
    dtype: np.dtype[Any], steps: list[int], rows: int, seed: int
) -> None:
    """Small gaps, steps back and repetitions, up to the last element, of rows of which some are left out."""
    rng = np.random.default_rng(seed)
    along = np.cumsum(steps)
    along -= along.min()
    source = numbers(dtype, (rows, int(along.max()) + 1), rng)
    kept = np.flatnonzero(rng.random(rows) < 0.7) if rows > 1 else np.zeros(1, np.int64)
    result = gather(source, [AxisMap(kept), AxisMap(along)], (len(kept), len(along)))
    np.testing.assert_array_equal(bits(result), bits(source[kept][:, along]))


def test_only_what_goes_backwards_or_in_odd_steps_is_copied_first() -> None:
    """What is moved, cut out or broadcast is read where it lies."""
    cube: Array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for view in (cube, cube.T, cube[:, ::2, 1:], np.broadcast_to(cube[:, :1], cube.shape), cube[:0]):
        assert transform_gather._readable(view) is view
    packed: Array = np.zeros(3, np.dtype([("flag", np.uint8), ("number", np.float32)]))["number"]
    for view in (cube[::-1], cube[:, :, ::-2], packed):
        read = transform_gather._readable(view)
        assert not np.shares_memory(read, view)
        assert read.flags.c_contiguous
        np.testing.assert_array_equal(read, view)
