"""Take weights out of a PyTorch model, and put weights into it.

Both speak of stored tensors by the names a Graph uses: those of the user's own code, tied tensors by
their first name (when loading, any of their names will do).
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import ml_dtypes
import numpy as np
import torch
from torch import Tensor, nn

from modelkeeper import _native
from modelkeeper.errors import InvalidWeights
from modelkeeper.frontends.torch.materialise import is_deferred, materialise
from modelkeeper.frontends.torch.named_tensors import named_tensors
from modelkeeper.frontends.torch.recorder import CPU, NamedTensor
from modelkeeper.frontends.torch.shards import is_part, whole_of, write_part

Array = np.ndarray[Any, np.dtype[Any]]
Module = TypeVar("Module", bound=nn.Module)

LARGE = 1 << 16  # bytes that are worth a way of their own
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

    Of a model that is divided among processes, all of them must read at the same time.

    Raises:
        InvalidWeights: A tensor is on the meta device, quantised or sparse: it has no plain numbers.
    """
    for named in named_tensors(model):
        if named.stored:
            tensor = whole_of(named.tensor) if is_part(named.tensor) else named.tensor
            yield named.names[0], as_array(named.names[0], tensor)


def load(model: Module, weights: Mapping[str, Any]) -> Module:
    """Write weights into a model, in place, and return it: optimizers built on its parameters stay valid.

    Every name and shape is checked before the first number is written. Dtype and device of the model are
    kept; tensors that `weights` does not name are left alone. A model on the meta device gets memory, and
    initial values for what `weights` does not name: its parameters are then new ones (see `materialise`).

    Args:
        model: Any module, wrapped or not.
        weights: Arrays or tensors by name.

    Raises:
        InvalidWeights: A name is unknown or given twice, or a shape or kind of number does not fit. The
            model is then unchanged.
        CannotMaterialise: The model is on the meta device, and nothing says how the rest is initialised. It
            is then unchanged, too.
    """
    planned = targets(model, weights)
    if not is_deferred(model):
        _write(planned)
        return model
    undo = materialise(model, planned)
    try:
        _write(targets(model, {name: value for name, (_, value) in planned.items()}))
    except BaseException:
        undo()
        raise
    return model


def _write(planned: Mapping[str, tuple[Tensor, Any]]) -> None:
    """Write values into tensors, by name: all of them have been checked."""
    moved = {name: way for name, pair in planned.items() if (way := _as_bytes(*pair)) is not None}
    sources, outs = [source for source, _ in moved.values()], [out for _, out in moved.values()]
    _native.copy(sources, outs, torch.get_num_threads())
    torch.autograd.graph.increment_version([planned[name][0] for name in moved])
    with torch.no_grad():
        for name, (target, value) in planned.items():
            if name not in moved:
                source = as_tensor(name, value)
                if is_part(target):
                    write_part(target, source)
                    continue
                shared = source.device == target.device and _place(source) == _place(target)
                target.copy_(source.clone() if shared else source)  # what overlaps cannot be copied as it is


def targets(model: nn.Module, weights: Mapping[str, Any]) -> dict[str, tuple[Tensor, Any]]:
    """Where each weight goes, with the weight, by the first name of its tensor; checked, as `load` says."""
    homes = {name: named for named in named_tensors(model) if named.stored for name in named.names}
    planned: dict[str, tuple[Tensor, Any]] = {}
    for name, value in weights.items():
        home = homes.get(name)
        if home is None:
            raise InvalidWeights(name, f"the model has no such tensor{_nearest(name, homes)}")
        if home.names[0] in planned:
            raise InvalidWeights(name, f"it is tied to {home.names[0]!r}, which is given too")
        planned[home.names[0]] = (home.tensor, _fitting(name, value, home.tensor))
    return planned


def _place(tensor: Tensor) -> int:
    """Where the memory begins that a tensor lies in."""
    return tensor.untyped_storage().data_ptr() if tensor.layout == torch.strided else id(tensor)


def _as_bytes(target: Tensor, value: Any) -> tuple[Array, Array] | None:
    """Source and target bytes of a large tensor that can be copied byte for byte; None: it cannot."""
    if target.layout != torch.strided or target.nbytes < LARGE or _dtype("", value) != target.dtype:
        return None
    source, out = _bytes(value), _bytes(target)
    return None if source is None or out is None or np.may_share_memory(source, out) else (source, out)


def _bytes(value: Any) -> Array | None:
    """The memory of an array or a tensor, if it is plain."""
    if isinstance(value, Tensor):
        plain = type(value) in (Tensor, nn.Parameter) and value.device == CPU and value.is_contiguous()
        if not plain or value.is_quantized or value.is_conj() or value.is_neg() or value.is_inference():
            return None
        return value.detach().reshape(-1).view(torch.uint8).numpy()
    return value.reshape(-1).view(np.uint8) if value.flags.c_contiguous and value.dtype.isnative else None


def as_array(name: str, tensor: Tensor) -> Array:
    """An array of a tensor's numbers, in its memory where that is possible."""
    tensor = tensor.detach()
    if tensor.is_meta:
        raise InvalidWeights(name, "it is on the meta device and has no numbers")
    if is_part(tensor):
        raise InvalidWeights(name, "only a part of it is in this process")
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


def _fitting(name: str, value: Any, target: Tensor) -> Any:
    """Check that a value fits a model's tensor in shape and dtype; its numbers are not touched."""
    value = value.detach() if isinstance(value, Tensor) else np.asarray(value)
    if isinstance(value, Tensor) and value.is_meta:
        raise InvalidWeights(name, "the weight is on the meta device and has no numbers")
    if tuple(value.shape) != tuple(target.shape):
        raise InvalidWeights(name, f"shape {tuple(value.shape)}, the model has {tuple(target.shape)}")
    if not torch.can_cast(_dtype(name, value), target.dtype):
        raise InvalidWeights(name, f"{_dtype(name, value)} cannot become {target.dtype}")
    return value


def _dtype(name: str, value: Any) -> torch.dtype:
    """The torch dtype of an array or a tensor."""
    return value.dtype if isinstance(value, Tensor) else as_tensor(name, np.empty(0, value.dtype)).dtype


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


def _nearest(name: str, known: Mapping[str, NamedTensor]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
