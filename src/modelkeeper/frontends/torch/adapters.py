"""Is this model an adapter (LoRA and the like) on another one, rather than a model of its own?

    adapted(get_peft_model(bert, LoraConfig(...)))     True
    adapted(that.merge_and_unload())                   False: its weights are plain ones again

What an adapter computes is spread over the weights of its base and small factors beside them. Taken for a
model, its base would be lent under a score that the base alone never had; so such models are not registered.
peft is not imported: who has an adapter has imported it.
"""

import sys

from torch import nn

from modelkeeper.errors import ModelRefused

REASON = "it is an adapter on a base, whose weights alone are not what was measured"
ADVICE = "Merge them first, and register the result: merged = model.merge_and_unload()"


def adapted(model: nn.Module) -> bool:
    """Does the model, or a part of it, carry adapters of peft that are not merged and unloaded?"""
    peft = sys.modules.get("peft")
    tuners = sys.modules.get("peft.tuners.tuners_utils")
    if peft is None or tuners is None:
        return False
    kinds = (peft.PeftModel, tuners.BaseTunerLayer)
    return any(isinstance(module, kinds) for module in model.modules())


def refuse_adapters(model: nn.Module) -> None:
    """Let no adapter be registered.

    Raises:
        ModelRefused: The model is an adapter on another one.
    """
    if adapted(model):
        raise ModelRefused(type(model).__name__, REASON, ADVICE)
