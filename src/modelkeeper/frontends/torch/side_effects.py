"""Run a model without leaving a trace on it.

While `without_side_effects` is entered, every module is in evaluation mode, the user's hooks are off,
wrappers (see `unwrap`) are looked through, so is the forward method that accelerate puts before the own one,
and autocast is off. Afterwards everything is as it was, also what
modules keep on themselves (caches, counters, `training` flags), and also when the forward pass raised.
Settings of the whole process are not touched, so that other threads notice nothing; random numbers: see
`random_state`.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from modelkeeper.frontends.torch.random_state import keep_state_if_alone

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_PATCHED = "_original_forward"  # where accelerate keeps a model's own forward method
_DEVICES = ("cpu", "cuda", "mps", "xpu")  # for which autocast can be switched on
_TABLES = ("_modules", "_parameters", "_buffers", *_HOOKS)


def unwrap(model: nn.Module) -> nn.Module:
    """The module behind DataParallel, DistributedDataParallel, torch.compile and running averages."""
    while True:
        inner = _inner(model)
        if inner is None:
            return model
        model = inner


def _inner(model: nn.Module) -> nn.Module | None:
    if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        inner = model.module
    elif type(model).__name__ == "OptimizedModule" and type(model).__module__.startswith("torch._dynamo"):
        inner = model._modules["_orig_mod"]
    elif type(model).__name__ == "AveragedModel" and type(model).__module__.startswith("torch.optim."):
        inner = model._modules["module"]
    else:
        return None
    assert isinstance(inner, nn.Module)
    return inner


def modules_by_name(model: nn.Module, *, repeat: bool = False) -> Iterator[tuple[str, nn.Module]]:
    """Every module by the name it has in the user's own code: wrappers add nothing to it.

    A module that is registered in several places comes once, or with `repeat` under each of its names.
    """
    seen: set[int] = set()
    stack = [("", unwrap(model))]
    while stack:
        name, module = stack.pop()
        if id(module) in seen and not repeat:
            continue
        seen.add(id(module))
        yield name, module
        below = [
            (f"{name}.{key}" if name else key, unwrap(child))
            for key, child in module._modules.items()
            if child is not None
        ]
        stack.extend(reversed(below))


def _functional(hook: object) -> bool:
    """Is it a hook of torch itself (weight norm, spectral norm, pruning), part of what the model computes?"""
    return (getattr(hook, "__module__", None) or type(hook).__module__).startswith("torch.nn.utils")


class InParts(TorchFunctionMode):
    """Shows the current thread's operations in their parts, where torch would hide some.

    Attention does not use its fused kernel where somebody listens to torch's functions; torch's own switch is
    one for all threads. Lists that a tensor is indexed with become tensors whose numbers can be seen: torch
    would make them where the tensor is, and on the meta device nothing has numbers.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is Tensor.__getitem__:
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            if any(isinstance(part, (list, np.ndarray)) for part in index):
                seen = [torch.as_tensor(p) if isinstance(p, (list, np.ndarray)) else p for p in index]
                args = (args[0], tuple(seen))
        return func(*args, **(kwargs or {}))


def own_forward(module: nn.Module) -> Callable[..., Any]:
    """The forward method of a module's own class, behind what accelerate puts before it."""
    forward: Callable[..., Any] = module.__dict__.get(_PATCHED, module.forward)
    return forward


@contextmanager
def without_side_effects(model: nn.Module) -> Iterator[nn.Module]:
    """Run a model in evaluation mode and undo all side effects; see the module's docstring for which."""
    bare = unwrap(model)
    everything = [module for _, module in modules_by_name(bare)]
    scripted = [
        (module, module.training) for module in everything if isinstance(module, torch.jit.ScriptModule)
    ]
    modules = [module for module in everything if not isinstance(module, torch.jit.ScriptModule)]
    before = [(module, dict(module.__dict__), _tables(module)) for module in modules]
    try:
        for module in modules:
            module.__dict__["training"] = False
            module.__dict__["_compiled_call_impl"] = None
            if _PATCHED in module.__dict__:
                module.__dict__["forward"] = own_forward(module)
            for table in _HOOKS:
                hooks = module.__dict__[table]
                for key in [key for key, hook in hooks.items() if not _functional(hook)]:
                    del hooks[key]
            for key, child in module._modules.items():
                if child is not None:
                    module._modules[key] = unwrap(child)
        for module, _ in scripted:
            module.eval()
        with keep_state_if_alone(), _without_autocast(), torch.inference_mode():
            yield bare
    finally:
        for module, training in scripted:
            module.train(training)
        for module, attributes, tables in before:
            module.__dict__.clear()
            module.__dict__.update(attributes)
            for table, content in tables.items():
                kept = module.__dict__[table]
                kept.clear()
                kept.update(content)


@contextmanager
def _without_autocast() -> Iterator[None]:
    """Compute in the types that tensors have, whatever the training has switched on in this thread."""
    with ExitStack() as stack:
        for device in _DEVICES:
            if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield


def _tables(module: nn.Module) -> dict[str, dict[str, Any]]:
    return {table: dict(module.__dict__[table]) for table in _TABLES}
