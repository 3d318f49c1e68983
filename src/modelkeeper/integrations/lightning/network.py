"""Which network of a LightningModule is lent to and kept, when is it there, and what does it run on?

A zoo should hold networks, not what trains them: others start from them, in other scripts and frameworks. So
if all parameters of a LightningModule belong to one child, such as `self.model` beside a loss and metrics,
that child is the network; else the LightningModule is, by its `forward`.
"""

from typing import Any

from modelkeeper.errors import InvalidSetting
from modelkeeper.frontends.torch.inputs import Inputs
from modelkeeper.frontends.torch.side_effects import without_side_effects
from modelkeeper.logs import logger

_log = logger()
_BUILDING = ("setup", "configure_model", "configure_sharded_model")  # hooks that may build a network


def network_of(module: Any, name: str = "") -> Any:
    """The network of a LightningModule.

    Args:
        module: It is there when it has its parameters.
        name: What it is called in the LightningModule, e.g. "model" or "student.body". Default: see above.

    Raises:
        InvalidSetting: Nothing is called so.
    """
    if name:
        try:
            return module.get_submodule(name)
        except AttributeError:
            known = ", ".join(child for child, _ in module.named_children()) or "none"
            advice = f"name an attribute of {type(module).__name__} that is a module; there are {known}"
            raise InvalidSetting("module", repr(name), advice) from None
    owners = [child for child in module.children() if _has_parameters(child)]
    alone = len(owners) == 1 and not _has_parameters(module, recurse=False)
    return owners[0] if alone and _runs(owners[0]) else module


def is_built_later(module: Any) -> bool:
    """Does a LightningModule have hooks that may build its network, or a part of it, when training begins?"""
    kinds = [kind for kind in type(module).__mro__ if not _of_lightning(kind)]
    return any(hook in vars(kind) for kind in kinds for hook in _BUILDING)


def inputs_of(module: Any, network: Any) -> Any:
    """What a network runs on, by its LightningModule's `example_input_array`; None: that does not tell."""
    example = getattr(module, "example_input_array", None)
    if example is None or network is module or not _runs(module):
        return example
    inputs, seen = Inputs.of(example), []

    def see(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen.append(Inputs(args, tuple(kwargs.items())))
        raise _Seen

    try:
        with without_side_effects(module) as bare:
            network.register_forward_pre_hook(see, with_kwargs=True)  # it goes when this block ends
            bare(*inputs.args, **dict(inputs.kwargs))
    except _Seen:
        args = tuple(map(_copy, seen[0].args))
        return Inputs(args, tuple((name, _copy(value)) for name, value in seen[0].kwargs))
    except Exception as problem:  # noqa: BLE001 (it runs the user's code; there are other ways to find inputs)
        _log.info("example_input_array did not lead to the network: %s", problem)
    return None


class _Seen(Exception):
    """The network was reached: the rest need not run."""


def _copy(value: Any) -> Any:
    """A tensor that may be used outside of inference mode."""
    return value.clone() if hasattr(value, "clone") else value


def _has_parameters(module: Any, recurse: bool = True) -> bool:
    return next(module.parameters(recurse=recurse), None) is not None


def _runs(module: Any) -> bool:
    """Does a module have a `forward` of its own? A list of modules has none."""
    kinds = [kind for kind in type(module).__mro__ if not _of_lightning(kind) and kind.__name__ != "Module"]
    return any("forward" in vars(place) for place in (module, *kinds))


def _of_lightning(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in ("lightning", "pytorch_lightning", "lightning_fabric")
