"""How does a model draw random numbers without touching the generators that everybody shares?

torch has one generator for each device and all threads. While `PrivateRandom` is entered, whatever the
current thread asks the dispatcher to draw comes out of generators of its own, seeded anew, and the shared
ones stay as they are, to the bit. That holds for every operator on the CPU. A few kernels of accelerators
(attention with dropout) take no generator: they draw from the shared one, whose state is put back under a
lock. What recomputes a forward pass in the backward pass (checkpointing) drops out anew when it does.
"""

import threading
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from modelkeeper.frontends.torch.aten import aten_operator

_SHARED = threading.Lock()
_CHANCES = ("p", "dropout", "dropout_p")  # what operators call the chance by which they draw


class PrivateRandom(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Lets the current thread draw from generators of its own: `with PrivateRandom(seed): model(x)`."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch imports its compiler, which takes seconds, to keep away from it

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        operator = aten_operator(func)
        if not operator.random or _draws_nothing(func, args, kwargs):
            return func(*args, **kwargs)
        device = _device(args, kwargs)
        if device.type == "meta":
            return func(*args, **kwargs)
        drawing = _with_generator(func)
        if drawing is not None:
            return drawing(*args, **{**kwargs, "generator": self._generator(device)})
        if operator.composite:
            with self:
                return func.decompose(*args, **kwargs)
        if func._schema.name == "aten::native_dropout":
            return self._dropout(*args, **kwargs)
        return self._put_back(func, args, kwargs, device)

    def _generator(self, device: torch.device) -> torch.Generator:
        known = self._generators.get(device)
        if known is None:
            known = self._generators[device] = torch.Generator(device).manual_seed(self._seed)
        return known

    def _dropout(self, given: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
        mask = torch.empty_like(given, dtype=torch.bool)
        mask.bernoulli_(1 - p, generator=self._generator(given.device))
        return given * mask * (1 / (1 - p) if p < 1 else 0.0), mask

    def _put_back(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], device: torch.device
    ) -> Any:
        with _SHARED, torch.random.fork_rng([device], device_type=device.type):
            return func(*args, **kwargs)


def _draws_nothing(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Does an operator that may draw leave it, since it drops nothing out?"""
    names = aten_operator(func).arguments
    given = dict(zip(names, args, strict=False)) | kwargs
    chances = [given.get(name, 0.0) for name in _CHANCES if name in names and "generator" not in names]
    return bool(chances) and (given.get("train", True) is False or not any(chances))


def _device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device:
    """Where the numbers will be."""
    if kwargs.get("device") is not None:
        device = torch.device(kwargs["device"])
    else:
        tensor = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
        device = torch.get_default_device() if tensor is None else tensor.device
    if device.type in ("cpu", "meta") or device.index is not None:
        return device
    return torch.empty(0, device=device).device


@cache
def _with_generator(func: OpOverload) -> OpOverload | None:
    """The operator, or its variant that takes a generator."""
    wanted = [argument.name for argument in func._schema.arguments]
    if "generator" in wanted:
        return func
    packet = func.overloadpacket
    for name in packet.overloads():
        overload: OpOverload = getattr(packet, name)
        arguments = overload._schema.arguments
        names = [argument.name for argument in arguments]
        kinds = {argument.name: str(argument.type) for argument in arguments}
        same = all(kinds.get(argument.name) == str(argument.type) for argument in func._schema.arguments)
        if "generator" in names and same and [name for name in names if name != "generator"] == wanted:
            return overload
    return None
