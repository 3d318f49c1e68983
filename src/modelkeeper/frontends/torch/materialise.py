"""How does a model that was built on the meta device get its memory and its first values?

    with torch.device("meta"):
        model = Net()                          shapes and types, no memory: this costs nothing
    undo = materialise(model, lent)            memory for all of it; what is not lent has initial values

What is going to be written anyway is not initialised first. The rest gets the values that it would have had
if the model had been built with memory: from `reset_parameters` of its module, and then from a method
`_init_weights` of a module above it, as Hugging Face and many others have it. What nobody initialises (a
parameter that `__init__` fills by itself, a table that is computed there) cannot be known: that is an error
which names it, and the model stays as it was.

Parameters and buffers are replaced by new ones, as `Module.to_empty` does; tied ones stay tied. Optimizers
are therefore built afterwards. Memory is on torch's default device: `with torch.device("cuda"): ...`.
"""

import contextlib
import inspect
from collections.abc import Callable, Collection, Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn

from modelkeeper.errors import CannotMaterialise
from modelkeeper.frontends.torch.named_tensors import named_tensors
from modelkeeper.frontends.torch.side_effects import modules_by_name
from modelkeeper.text import first_line

_RESETS = ("reset_parameters", "_reset_parameters")  # what modules of torch call their own rule


def is_deferred(model: nn.Module) -> bool:
    """Has any parameter or buffer of a model no memory?"""
    return any(tensor.is_meta for _, _, _, tensor in _held(model))


@torch.inference_mode(False)
def materialise(model: nn.Module, lent: Collection[str] = ()) -> Callable[[], None]:
    """Give memory to all that has none, and initial values to what is not lent, by name. What undoes it?

    Raises:
        CannotMaterialise: Nothing says how a tensor is initialised. The model is then as it was.
    """
    fresh = _new_memory(model)
    given = {
        id(named.tensor)
        for named in named_tensors(model)
        if named.stored and not set(lent).isdisjoint(named.names)
    }
    replaced = [place for place in _held(model) if id(place[3]) in fresh]
    mine = {id(fresh[old]) for old in fresh if old not in given}  # those that a rule has to fill

    def undo() -> None:
        for module, table, key, old in replaced:
            table[key] = old
            _renewed(module)

    for module, table, key, old in replaced:
        table[key] = fresh[id(old)]
        _renewed(module)
    try:
        _initialise(model, mine)
    except BaseException:
        undo()
        raise
    return undo


@torch.inference_mode(False)  # tensors made in that mode do not count what is written to them
def fill_tables(model: nn.Module) -> None:
    """Fill the tables that a model computes for itself and does not store, where they have no memory.

    What is looked up in a table is known from its numbers. They are few, and the rest stays as it is.
    """
    owners = dict(modules_by_name(model))
    for name, module in owners.items():
        keys = [key for key in module._non_persistent_buffers_set if _deferred_table(module, key)]
        if not keys:
            continue
        before = {key: module._buffers[key] for key in keys}
        for key, table in before.items():
            module._buffers[key] = torch.empty_like(cast(Tensor, table), device=_device())
        with contextlib.suppress(CannotMaterialise):  # it stays unknown
            _by_rule(type(model).__name__, owners, name, module)
        unknown = [key for key in keys if not cast(Tensor, module._buffers[key])._version]
        module._buffers.update({key: before[key] for key in unknown})


def _deferred_table(module: nn.Module, key: str) -> bool:
    table = module._buffers.get(key)
    return table is not None and table.is_meta


def _device() -> torch.device:
    """Where new memory is: on torch's default device."""
    default = torch.get_default_device()
    return torch.device("cpu") if default.type == "meta" else default


def _held(model: nn.Module) -> Iterator[tuple[nn.Module, dict[str, Any], str, Tensor]]:
    """Where each parameter and buffer is held: the module, its table, the key, and the tensor."""
    for _, module in modules_by_name(model):
        for table in (module._parameters, module._buffers):
            for key, tensor in [*table.items()]:
                if tensor is not None:
                    yield module, table, key, tensor


def _new_memory(model: nn.Module) -> dict[int, Tensor]:
    """A tensor with memory for each that has none, by the identity of the old one."""
    device = _device()
    fresh: dict[int, Tensor] = {}
    for _, _, _, old in _held(model):
        if old.is_meta and id(old) not in fresh:
            new = torch.empty_like(old, device=device, requires_grad=False)
            if isinstance(old, nn.Parameter):
                new = nn.Parameter(new, requires_grad=old.requires_grad)
            new.__dict__.update(old.__dict__)
            fresh[id(old)] = new
    return fresh


def _renewed(module: nn.Module) -> None:
    """Let a module see its new parameters, if it keeps a list of them: recurrent ones do."""
    if isinstance(module, nn.RNNBase):
        module._init_flat_weights()


def _initialise(model: nn.Module, mine: set[int]) -> None:
    """Run the rules of all modules that hold such tensors, and see that each of them was written.

    Every write counts a tensor's version up, so that one that nobody wrote to is known.
    """
    owners = dict(modules_by_name(model))
    for name, module in owners.items():
        own = [tensor for tensor in _own(module) if id(tensor) in mine]
        if own:
            _by_rule(type(model).__name__, owners, name, module)
        for key, value in vars(module).items():
            if isinstance(value, Tensor) and value.is_meta and not module._forward_pre_hooks:
                raise CannotMaterialise(type(model).__name__, f"{name}.{key}".lstrip("."))
    for name, module in owners.items():
        for key, tensor in [*module._parameters.items(), *module._buffers.items()]:
            if tensor is not None and id(tensor) in mine and tensor.numel() and not tensor._version:
                raise CannotMaterialise(type(model).__name__, f"{name}.{key}".lstrip("."))


def _own(module: nn.Module) -> list[Tensor]:
    """A module's own parameters and buffers."""
    held = (*module._parameters.values(), *module._buffers.values())
    return [tensor for tensor in held if tensor is not None]


def _by_rule(model: str, owners: dict[str, nn.Module], name: str, module: nn.Module) -> None:
    """Initialise a module as its construction would have: by itself, then by those above it."""
    above = [owners[name[:at]] for at in _prefixes(name) if name[:at] in owners]
    try:
        with torch.no_grad():
            for method in (getattr(module, reset, None) for reset in _RESETS):
                if callable(method) and _takes(method, 0):
                    method()
                    break
            for method in (getattr(each, "_init_weights", None) for each in above):
                if callable(method) and _takes(method, 1):
                    method(module)
                    break  # the nearest decides, as with models that are parts of others
    except CannotMaterialise:
        raise
    except Exception as problem:
        raise CannotMaterialise(model, name or "its own parameters", first_line(problem)) from problem


def _prefixes(name: str) -> list[int]:
    """The lengths of a module's name and of the names above it, the nearest first."""
    return [*(at for at in range(len(name), 0, -1) if at == len(name) or name[at] == "."), 0]


def _takes(method: Callable[..., Any], count: int) -> bool:
    """Can a method be called with so many arguments?"""
    try:
        inspect.signature(method).bind(*range(count))
    except (TypeError, ValueError):
        return False
    return True
