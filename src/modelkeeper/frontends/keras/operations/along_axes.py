"""Operations along axes: sums, means and other statistics, softmax, what is sorted or counted up."""

# ruff: noqa: A002 (arguments go by ATen's names)

from typing import Any

from keras import ops

from modelkeeper.frontends.keras.operations.table import available, axis_of, carries_out


def _over(self: Any, dim: Any) -> Any:
    """Axes as Keras takes them: None, or a tuple; none named means all."""
    if dim is None or dim == []:
        return None
    return tuple(axis_of(self, n) for n in (dim if isinstance(dim, list) else [dim]))


def _cast(self: Any, dtype: str | None) -> Any:
    return self if dtype is None else ops.cast(self, available(dtype))


@carries_out("softmax.int")
def _softmax(self: Any, dim: int, dtype: str | None) -> Any:
    return ops.softmax(_cast(self, dtype), axis_of(self, dim))


@carries_out("log_softmax.int")
def _log_softmax(self: Any, dim: int, dtype: str | None) -> Any:
    return ops.log_softmax(_cast(self, dtype), axis_of(self, dim))


@carries_out("cumsum.default")
def _cumsum(self: Any, dim: int, dtype: str | None) -> Any:
    return ops.cumsum(_cast(self, dtype), axis_of(self, dim))


@carries_out("sum.default", "sum.dim_IntList")
def _sum(self: Any, dtype: str | None, dim: Any = None, keepdim: bool = False) -> Any:
    return ops.sum(_cast(self, dtype), _over(self, dim), keepdims=keepdim)


@carries_out("mean.default", "mean.dim")
def _mean(self: Any, dtype: str | None, dim: Any = None, keepdim: bool = False) -> Any:
    return ops.mean(_cast(self, dtype), _over(self, dim), keepdims=keepdim)


@carries_out("prod.dim_int")
def _prod(self: Any, dim: int, keepdim: bool, dtype: str | None) -> Any:
    return ops.prod(_cast(self, dtype), _over(self, dim), keepdims=keepdim)


@carries_out("amax.default")
def _amax(self: Any, dim: Any, keepdim: bool) -> Any:
    return ops.max(self, _over(self, dim), keepdims=keepdim)


@carries_out("amin.default")
def _amin(self: Any, dim: Any, keepdim: bool) -> Any:
    return ops.min(self, _over(self, dim), keepdims=keepdim)


@carries_out("max.default")
def _max(self: Any) -> Any:
    return ops.max(self)


@carries_out("min.default")
def _min(self: Any) -> Any:
    return ops.min(self)


@carries_out("max.dim")
def _max_along(self: Any, dim: int, keepdim: bool) -> list[Any]:
    axis = axis_of(self, dim)
    return [ops.max(self, axis, keepdims=keepdim), ops.argmax(self, axis, keepdims=keepdim)]


@carries_out("min.dim")
def _min_along(self: Any, dim: int, keepdim: bool) -> list[Any]:
    axis = axis_of(self, dim)
    return [ops.min(self, axis, keepdims=keepdim), ops.argmin(self, axis, keepdims=keepdim)]


@carries_out("argmax.default")
def _argmax(self: Any, dim: int | None, keepdim: bool) -> Any:
    return ops.argmax(self, None if dim is None else axis_of(self, dim), keepdims=keepdim)


@carries_out("argmin.default")
def _argmin(self: Any, dim: int | None, keepdim: bool) -> Any:
    return ops.argmin(self, None if dim is None else axis_of(self, dim), keepdims=keepdim)


@carries_out("any.dim", "any.default")
def _any(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return ops.any(self, _over(self, dim), keepdims=keepdim)


@carries_out("all.dim", "all.default")
def _all(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return ops.all(self, _over(self, dim), keepdims=keepdim)


@carries_out("var.correction")
def _var(self: Any, dim: Any, correction: float | None, keepdim: bool) -> Any:
    axes = _over(self, dim)
    count = 1
    for axis in range(len(self.shape)) if axes is None else axes:
        count *= int(self.shape[axis])
    free = max(count - (1 if correction is None else correction), 0)
    made = ops.var(self, axes, keepdims=keepdim)
    return made if free == count else made * (count / free if free else float("inf"))


@carries_out("std.correction")
def _std(self: Any, dim: Any, correction: float | None, keepdim: bool) -> Any:
    return ops.sqrt(_var(self, dim, correction, keepdim))


@carries_out("var_mean.correction")
def _var_mean(self: Any, dim: Any, correction: float | None, keepdim: bool) -> list[Any]:
    return [_var(self, dim, correction, keepdim), ops.mean(self, _over(self, dim), keepdims=keepdim)]


@carries_out("logsumexp.default")
def _logsumexp(self: Any, dim: Any, keepdim: bool) -> Any:
    return ops.logsumexp(self, _over(self, dim), keepdims=keepdim)


@carries_out("linalg_vector_norm.default")
def _vector_norm(self: Any, ord: float, dim: Any, keepdim: bool, dtype: str | None) -> Any:
    size, axes = ops.abs(_cast(self, dtype)), _over(self, dim)
    if ord == float("inf"):
        return ops.max(size, axes, keepdims=keepdim)
    if ord == 1:
        return ops.sum(size, axes, keepdims=keepdim)
    if ord == 2:
        return ops.sqrt(ops.sum(ops.square(size), axes, keepdims=keepdim))
    return ops.power(ops.sum(ops.power(size, ord), axes, keepdims=keepdim), 1 / ord)


@carries_out("topk.default")
def _topk(self: Any, k: int, dim: int, largest: bool, sorted: bool) -> list[Any]:
    axis = axis_of(self, dim)
    last = ops.moveaxis(self, axis, -1)
    values, places = ops.top_k(last if largest else -last, k)
    return [ops.moveaxis(made, -1, axis) for made in (values if largest else -values, places)]


@carries_out("sort.default")
def _sort(self: Any, dim: int, descending: bool) -> list[Any]:
    axis = axis_of(self, dim)
    places = ops.argsort(-self if descending else self, axis)
    return [ops.take_along_axis(self, places, axis), places]


@carries_out("glu.default")
def _glu(self: Any, dim: int) -> Any:
    first, gate = ops.split(self, 2, axis_of(self, dim))
    return first * ops.sigmoid(gate)


@carries_out("_weight_norm.default")
def _weight_norm(v: Any, g: Any, dim: int) -> Any:
    axes = tuple(n for n in range(len(v.shape)) if n != axis_of(v, dim))
    return v * (g / ops.sqrt(ops.sum(ops.square(v), axes, keepdims=True)))
