"""Take weights out of a Keras model, and put weights into it.

Both speak of tensors by the names and in the axis order of the graph; how Keras stores them is said by the
layouts that were found when the model was described.
"""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from modelkeeper.errors import InvalidWeights
from modelkeeper.frontends.keras.describe import pieces_of
from modelkeeper.frontends.keras.numbers import to_numpy
from modelkeeper.frontends.keras.pieces import Piece
from modelkeeper.frontends.keras.variables import Variables
from modelkeeper.layouts import Laid, Layout
from modelkeeper.weights import Array

_KINDS = ("bool", "int", "float", "complex")  # of numbers: each can become a later one


def read(model: Any) -> Iterator[tuple[str, Array]]:
    """Every stored tensor by name. Arrays may share memory with the model: copy what you keep.

    Raises:
        CannotDescribe: The model was never described, and what it takes is not known.
    """
    for piece in pieces_of(model):
        if not piece.variable.stored:
            continue
        if piece.added:
            yield piece.name, np.zeros(piece.layout.last, piece.variable.dtype)
        else:
            numbers = _numbers(piece)
            yield piece.name, piece.layout.canonical(numbers if piece.row is None else numbers[piece.row])


def layouts(model: Any) -> dict[str, Layout]:
    """How the model stores each tensor that is a variable of its own, by name."""
    return {
        piece.name: piece.layout
        for piece in pieces_of(model)
        if piece.variable.stored and piece.row is None and not piece.added
    }


def frozen(model: Any) -> frozenset[str]:
    """The names of the tensors that the user has frozen: see `Variables`."""
    still = {id(named.variable) for named in Variables(model) if named.frozen}
    return frozenset(piece.name for piece in pieces_of(model) if id(piece.variable.variable) in still)


def load(model: Any, weights: Mapping[str, Any]) -> None:
    """Write weights into a model, in place: the variables stay the same, and an optimizer's slots for them.

    Raises:
        InvalidWeights: A name is unknown, or a shape or kind of number does not fit. Nothing is changed then.
        CannotDescribe: The model was never described, and what it takes is not known.
    """
    homes = {piece.name: piece for piece in pieces_of(model) if piece.variable.stored}
    given: dict[int, list[tuple[Piece, Array | Laid]]] = {}
    for name, value in weights.items():
        home = homes.get(name)
        if home is None:
            near = difflib.get_close_matches(name, homes, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InvalidWeights(name, f"the model has no such tensor{hint}")
        given.setdefault(id(home.variable.variable), []).append((home, _fitting(home, value)))
    ready = [(parts[0][0].variable.variable, _stored(parts)) for parts in given.values()]
    for variable, array in ready:
        variable.assign(array)


def _stored(parts: list[tuple[Piece, Array | Laid]]) -> Array:
    """The array to store in a variable: new memory, which nobody else has."""
    piece, value = parts[0]
    named = piece.variable
    if isinstance(value, Laid) and len(parts) == 1:  # it stands there as it will be stored
        return value.array.reshape(named.shape).astype(named.dtype, copy=False)
    array = np.asarray(value)
    if len(parts) == 1 and piece.row is None and not piece.added:
        return np.array(piece.layout.stored(array, named.shape), named.dtype, order="C")
    made = np.array(_numbers(piece))
    whole = any(part.row is None and not part.added for part, _ in parts)
    for part, value in sorted(parts, key=lambda each: each[0].added):
        array = np.asarray(value)
        if part.row is not None:
            made[part.row] = part.layout.stored(array, made.shape[1:])
        elif part.added:
            made = (made + part.layout.stored(array, made.shape)).astype(named.dtype)
        else:
            assert whole
            made = np.array(part.layout.stored(array, made.shape), named.dtype)
    return made


def _numbers(piece: Piece) -> Array:
    """The numbers of a variable, as it has them."""
    array = to_numpy(piece.variable.variable)
    return array if array.dtype.name == piece.variable.dtype else array.astype(piece.variable.dtype)


def _fitting(piece: Piece, value: Any) -> Array | Laid:
    """Check that a value fits a tensor of the graph in shape and kind of number."""
    laid = value if isinstance(value, Laid) and value.layout == piece.layout else None
    try:
        array = to_numpy(value) if laid is None else laid.array.reshape(laid.layout.last)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidWeights(piece.name, f"{type(value).__name__} is no array of numbers") from error
    if array.shape != piece.layout.last:
        raise InvalidWeights(piece.name, f"shape {array.shape}, the model has {piece.layout.last}")
    if _kind(array.dtype.name) > _kind(piece.variable.dtype) or _kind(array.dtype.name) < 0:
        raise InvalidWeights(piece.name, f"{array.dtype.name} cannot become {piece.variable.dtype}")
    return array if laid is None else laid


def _kind(dtype: str) -> int:
    """Which kind of number a dtype holds; -1: none."""
    return next((n for n, kind in reversed(list(enumerate(_KINDS))) if kind in dtype), -1)
