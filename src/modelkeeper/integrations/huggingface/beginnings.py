"""Does this training begin, or go on from something worth keeping?

    why_not_asked(model, args, state, pretrained="keep")     "" if the keeper is to be asked

A checkpoint, an earlier training of the same model, weights that `from_pretrained` has read, a base that
carries adapters: all of these are left as they are.
"""

import weakref
from typing import Any

from modelkeeper.errors import InvalidSetting
from modelkeeper.frontends.torch.adapters import adapted

KEEP, ASK = "keep", "ask"
_BEGUN: "weakref.WeakSet[Any]" = weakref.WeakSet()  # models that have been trained in this process


def checked_choice(pretrained: str) -> str:
    """What becomes of models that were loaded by `from_pretrained`.

    Raises:
        InvalidSetting: It is neither "keep" nor "ask".
    """
    if pretrained not in (KEEP, ASK):
        raise InvalidSetting("pretrained", repr(pretrained), 'choose "keep" or "ask"')
    return pretrained


def why_not_asked(model: Any, args: Any, state: Any, pretrained: str) -> str:
    """Why the model is left as it is; "" if its training begins here."""
    if state.global_step > 0:
        return "the training goes on from a checkpoint"
    if model in _BEGUN:
        return "the model has been trained before"
    if getattr(args, "deepspeed", None):
        return "DeepSpeed has made its own copies of the weights; ask before you make the Trainer"
    if adapted(model):
        return "it carries adapters; ask for the base alone, before get_peft_model"
    if pretrained == KEEP and from_pretrained(model):
        return 'it was loaded by from_pretrained; WarmStart(pretrained="ask") asks nevertheless'
    return ""


def remember(model: Any) -> None:
    """The model is being trained: a later training of it goes on."""
    _BEGUN.add(model)


def from_pretrained(model: Any) -> bool:
    """Has `from_pretrained` read weights into this model?

    It marks the parameters that it has read; a name in the config proves nothing, since `from_config` leaves
    one, too, with random weights.
    """
    return any(getattr(parameter, "_is_hf_initialized", False) for parameter in model.parameters())
