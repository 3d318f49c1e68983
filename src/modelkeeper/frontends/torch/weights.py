"""Take weights out of a PyTorch model, and put weights into it.

Both speak of stored tensors by the names a Graph uses: those of the user's own code, tied tensors by
their first name (when loading, any of their names will do).
"""

from collections.abc import Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch import Tensor, nn

from modelkeeper.errors import InvalidWeights
from modelkeeper.frontends.torch.owned import owned_tensors
from modelkeeper.frontends.torch.record import CPU, Owned

Array = np.ndarray[Any, np.dtype[Any]]

# Types that NumPy does not have itself, with an integer type of the same width to carry them over.
_FOREIGN = {
    torch.bfloat16: (torch.int16, np.dtype(ml_dtypes.bfloat16)),
    torch.float8_e4m3fn: (torch.int8, np.dtype(ml_dtypes.float8_e4m3fn)),
    torch.float8_e5m2: (torch.int8, np.dtype(ml_dtypes.float8_e5m2)),
    torch.float8_e4m3fnuz: (torch.int8, np.dtype(ml_dtypes.float8_e4m3fnuz)),
    torch.float8_e5m2fnuz: (torch.int8, np.dtype(ml_dtypes.float8_e5m2fnuz)),
}
_TORCH = {numpy: (carrier, dtype) for dtype, (carrier, numpy) in _FOREIGN.items()}


def read(model: nn.Module) -> Iterator[tuple[str, Array]]:
    """Every stored tensor by name. Arrays share memory with tensors on the CPU: copy what you keep.

    Raises:
        InvalidWeights: A tensor is on the meta device, quantised or sparse: it has no plain numbers.
    """
    for each in owned_tensors(model):
        if each.stored:
            yield each.names[0], _array(each)


def load(model: nn.Module, weights: Mapping[str, Any]) -> None:
    """Write weights into a model, in place: optimizers built on its parameters stay valid.

    Every name and shape is checked before the first number is written. Dtype and device of the model are
    kept; tensors that `weights` does not name are left alone.

    Args:
        model: Any module, wrapped or not.
        weights: Arrays or tensors by name.

    Raises:
        InvalidWeights: A name is unknown or given twice, or a shape or kind of number does not fit. The
            model is then unchanged.
    """
    homes = {name: each for each in owned_tensors(model) if each.stored for name in each.names}
    planned: dict[str, tuple[Tensor, Tensor]] = {}
    for name, value in weights.items():
        home = homes.get(name)
        if home is None:
            raise InvalidWeights(name, f"the model has no such tensor{_nearest(name, homes)}")
        if home.names[0] in planned:
            raise InvalidWeights(name, f"it is tied to {home.names[0]!r}, which is given too")
        planned[home.names[0]] = (home.tensor, _fitting(name, value, home.tensor))
    with torch.no_grad():
        for target, source in planned.values():
            target.copy_(source)


def _array(each: Owned) -> Array:
    tensor, name = each.tensor.detach(), each.names[0]
    if tensor.is_meta:
        raise InvalidWeights(name, "it is on the meta device and has no numbers")
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise InvalidWeights(
            name, f"it is {'quantised' if tensor.is_quantized else 'sparse'}; make it dense first"
        )
    tensor = tensor.to(CPU).resolve_conj().resolve_neg()
    if tensor.dtype in _FOREIGN:
        carrier, dtype = _FOREIGN[tensor.dtype]
        return tensor.view(carrier).numpy().view(dtype)
    array: Array = tensor.numpy()
    return array


def _fitting(name: str, value: Any, target: Tensor) -> Tensor:
    source = as_tensor(name, value)
    if target.is_meta:
        raise InvalidWeights(name, "the model is on the meta device; materialise it first (model.to_empty)")
    if source.is_meta:
        raise InvalidWeights(name, "the weight is on the meta device and has no numbers")
    if source.shape != target.shape:
        raise InvalidWeights(name, f"shape {tuple(source.shape)}, the model has {tuple(target.shape)}")
    if not torch.can_cast(source.dtype, target.dtype):
        raise InvalidWeights(name, f"{source.dtype} cannot become {target.dtype}")
    return source


def as_tensor(name: str, value: Any) -> Tensor:
    """A tensor of an array's numbers, in its memory where that is possible."""
    if isinstance(value, Tensor):
        return value.detach()
    array = np.asarray(value)
    carrier, dtype = _TORCH.get(array.dtype, (None, None))
    if carrier is not None:
        array = array.view(np.int16 if array.dtype.itemsize == 2 else np.int8)
    if not array.flags.writeable or not array.dtype.isnative:
        array = array.astype(
            array.dtype.newbyteorder("=")
        )  # torch takes no read-only or foreign-endian memory
    try:
        tensor = torch.from_numpy(array)
    except (TypeError, ValueError) as error:
        raise InvalidWeights(name, str(error).partition("\n")[0]) from error
    return tensor.view(dtype) if dtype is not None else tensor


def _nearest(name: str, known: Mapping[str, Owned]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
