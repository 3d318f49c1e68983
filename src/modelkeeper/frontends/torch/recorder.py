"""What did the model just do? Every tensor operation of one forward pass, as a list of calls.

The recorder listens at the dispatcher (ATen level, under inference mode), where conv, linear, batch
norm and attention arrive whole. The model itself is not changed: wherever one of its tensors reaches
an operation, the recorder puts a stand-in in its place.

Two ways to run:

    on shapes     the stand-ins and the inputs are meta tensors: no weight is read, nothing is computed.
                  Small constants (masks, positions) stay real, so that code which looks at their values
                  still runs. What an operation returns for given shapes is worked out once per call.
    for real      CPU tensors, where an operation has no meta kernel or code looks at activations. Random
                  numbers are drawn from a generator of the recorder's own, always the same ones.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from modelkeeper.frontends.torch.aten import AtenOperator, aten_operator
from modelkeeper.frontends.torch.known_shapes import known_shape
from modelkeeper.frontends.torch.private_random import PrivateRandom
from modelkeeper.graph.vocabulary import BATCH_NORM, GROUP_NORM, LAYER_NORM

META = torch.device("meta")
# One result, like the first argument.
_KEEP_SHAPE = frozenset(f"aten::{name}" for name in (BATCH_NORM, LAYER_NORM, GROUP_NORM))
CPU = torch.device("cpu")


@dataclass(slots=True)
class Call:
    """One operation as it ran. Holding the tensors keeps their identities apart."""

    operator: AtenOperator
    func: OpOverload
    arguments: dict[str, Any]
    results: tuple[Tensor, ...]
    shapes: tuple[torch.Size, ...]  # of the results, then: a tensor may be resized later
    constant: bool = False  # of neither inputs nor weights: it was computed for real


@dataclass(slots=True)
class NamedTensor:
    """A tensor of the model: its names (the first is the one we use) and the stand-in for it."""

    names: list[str]
    tensor: Tensor
    parameter: bool
    stored: bool = True  # part of the model's state_dict
    stand_in: Tensor | None = None


@dataclass(slots=True)
class Recording:
    """All calls of a forward pass, and which of their tensors belong to the model."""

    calls: list[Call] = field(default_factory=list)
    owners: dict[int, NamedTensor] = field(default_factory=dict)  # by id of the stand-in
    touched: set[str] = field(default_factory=set)
    constants: dict[int, Tensor] = field(default_factory=dict)  # by id of the meta twin: the numbers


def place(tensor: Tensor) -> tuple[Any, ...]:
    """A key for the memory of a tensor: equal for tied tensors, also through `.data`."""
    return (
        tensor.untyped_storage()._cdata,
        tensor.storage_offset(),
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
    )


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records every call while it is active: `with torch.inference_mode(), recorder: model(*inputs)`."""

    def __init__(self, tensors: list[NamedTensor], *, real: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.recording = Recording()
        self._real = real
        self._by_id = {id(named.tensor): named for named in tensors}
        self._by_place = {
            place(named.tensor): named for named in tensors if named.tensor.layout == torch.strided
        }
        self._constants: dict[int, tuple[Tensor, Tensor]] = {}  # a foreign tensor and its meta twin
        self._results: dict[Any, Any] = {}
        self._random = PrivateRandom()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch imports its compiler, which takes seconds, to keep away from it

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        operator = aten_operator(func)
        if operator.composite and not operator.known:
            with self:
                return func.decompose(*args, **kwargs)
        seen = [t for t in tensors_in((args, kwargs)) if not self._constant(t)]
        if not self._real and not seen and not operator.random:
            if "device" in operator.arguments:  # a factory: numbers to write into later, or a constant
                out = func(*args, **{**kwargs, "device": META})
                if out.is_floating_point() and next(tensors_in((args, kwargs)), None) is None:
                    return self._note(func, args, kwargs, out)
                kwargs = {**kwargs, "device": CPU}
            return self._note(func, args, kwargs, func(*args, **kwargs), constant=True)
        ordinary = (operator.views or operator.writes) and any(
            not t.is_inference() for t in tensors_in((args, kwargs))
        )
        args, kwargs = map_tensors(args, self._lift), map_tensors(kwargs, self._lift)
        if kwargs.get("device") is not None:
            kwargs["device"] = CPU if self._real else META
        if self._real and operator.random:
            with self._random:
                out = func(*args, **kwargs)
        elif ordinary:  # a view of a tensor made outside inference mode has to be one, too
            with torch.inference_mode(False), torch.no_grad():
                out = func(*args, **kwargs)
        else:
            out = func(*args, **kwargs) if self._real else self._on_shapes(func, operator, args, kwargs)
        return self._note(func, args, kwargs, out)

    def _note(
        self,
        func: OpOverload,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any,
        constant: bool = False,
    ) -> Any:
        results = tuple(tensors_in(out))
        if results:
            operator = aten_operator(func)
            arguments = dict(zip(operator.arguments, args, strict=False)) | kwargs
            self.recording.calls.append(
                Call(operator, func, arguments, results, tuple([t.shape for t in results]), constant)
            )
        return out

    def _on_shapes(
        self, func: OpOverload, operator: AtenOperator, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run an operation on meta tensors, once for each set of shapes, since meta kernels are slow."""
        if operator.writes or operator.views:
            return func(*args, **kwargs)
        if func._schema.name in _KEEP_SHAPE:
            return torch.empty_strided(args[0].shape, args[0].stride(), dtype=args[0].dtype, device=META)
        made = known_shape(func, operator, args) if not kwargs else None
        if made is not None:
            return made
        key = (func, _key(args), _key(tuple(kwargs.items())))
        known = self._results.get(key)
        if known is not None:
            return known()
        out = func(*args, **kwargs)
        if isinstance(out, Tensor) and all(out is not t for t in tensors_in((args, kwargs))):
            shape, stride, dtype = out.shape, out.stride(), out.dtype
            self._results[key] = lambda: torch.empty_strided(shape, stride, dtype=dtype, device=META)
        return out

    def _constant(self, tensor: Tensor) -> bool:
        """Is it a constant: neither computed from the inputs nor a floating-point tensor of the model?"""
        if self._real or tensor.is_meta:
            return self._real
        owner = self._owner(tensor)
        if owner is None:
            return True
        self.recording.touched.add(owner.names[0])
        return not tensor.is_floating_point() and tensor.device == CPU and not owner.parameter

    def _owner(self, tensor: Tensor) -> NamedTensor | None:
        owner = self._by_id.get(id(tensor))
        if owner is None and tensor.layout == torch.strided:
            owner = self._by_place.get(place(tensor))
        return owner

    def _lift(self, tensor: Tensor) -> Tensor:
        """The stand-in for this tensor while recording."""
        if tensor.is_meta and id(tensor) not in self._by_id:
            return tensor
        owner = self._owner(tensor)
        if owner is None:
            if self._real or tensor.is_meta:
                return tensor
            twin = self._constants.get(id(tensor))
            if twin is None:
                with torch.inference_mode(tensor.is_inference()):
                    twin = self._constants[id(tensor)] = (tensor, _shape_of(tensor))
                self.recording.constants[id(twin[1])] = tensor
            return twin[1]
        self.recording.touched.add(owner.names[0])
        if owner.stand_in is None:
            with torch.inference_mode(False), torch.no_grad():
                owner.stand_in = _real_copy(tensor, owner) if self._real else _shape_of(tensor)
            self.recording.owners[id(owner.stand_in)] = owner
        return owner.stand_in


def _shape_of(tensor: Tensor) -> Tensor:
    if tensor.layout != torch.strided:
        return torch.empty(tensor.shape, dtype=tensor.dtype, device=META)
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=META)


def _real_copy(tensor: Tensor, owner: NamedTensor) -> Tensor:
    """The tensor on the CPU; buffers are copied, since a forward pass may change them."""
    if tensor.is_meta:
        return torch.zeros(tensor.shape, dtype=tensor.dtype)
    on_cpu = tensor.detach().to(CPU)
    return on_cpu if owner.parameter or on_cpu.data_ptr() != tensor.data_ptr() else on_cpu.clone()


def tensors_in(tree: Any) -> Iterator[Tensor]:
    """The tensors in nested tuples, lists and dicts, in order."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, (tuple, list)):
        for branch in tree:
            if branch is not None:
                yield from tensors_in(branch)
    elif isinstance(tree, dict):
        for branch in tree.values():
            yield from tensors_in(branch)


def map_tensors(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Change every tensor in nested tuples, lists and dicts."""
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, tuple):
        return tuple([map_tensors(branch, change) for branch in tree])
    if isinstance(tree, list):
        return [map_tensors(branch, change) for branch in tree]
    if isinstance(tree, dict):
        return {name: map_tensors(branch, change) for name, branch in tree.items()}
    return tree


def _key(tree: Any) -> Any:
    """A key of an argument: all of it that decides the shapes of the results."""
    if isinstance(tree, Tensor):
        return (tree.shape, tree.stride(), tree.dtype)
    if isinstance(tree, (tuple, list)):
        return tuple([_key(branch) for branch in tree])
    return (type(tree), tree)
