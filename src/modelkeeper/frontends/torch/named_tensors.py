"""Which tensors does a model own, and under which names?

Parameters and buffers, each once: tied tensors have several names, of which the first is used
everywhere. Names are those of the user's own code; wrappers add nothing. Buffers that the model keeps
out of its `state_dict` (a table it computes for itself) are owned too, but not stored.
"""

from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from modelkeeper.errors import CannotDescribe
from modelkeeper.frontends.torch.recorder import NamedTensor, place
from modelkeeper.frontends.torch.shards import reshard
from modelkeeper.frontends.torch.side_effects import modules_by_name

_QUANTISED = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized", "torch.ao.nn.sparse.quantized")


def named_tensors(model: nn.Module) -> list[NamedTensor]:
    """Every parameter and buffer of a model once, with all of its names, in the order of the modules.

    Raises:
        CannotDescribe: A layer has weights that are no tensors, or that have no shape yet.
    """
    reshard(model)
    by_place: dict[Any, NamedTensor] = {}
    for prefix, module in modules_by_name(model, repeat=True):
        if type(module).__module__.startswith(_QUANTISED) and hasattr(module, "_packed_params"):
            problem = f"its layer {prefix!r} is quantised, and holds its weights packed, not as tensors"
            raise CannotDescribe(type(model).__name__, problem, "Register the model before quantising it")
        for parameter, table in ((True, module._parameters), (False, module._buffers)):
            for key, tensor in table.items():
                if tensor is None:
                    continue
                name = f"{prefix}.{key}" if prefix else key
                if isinstance(tensor, (UninitializedParameter, UninitializedBuffer)):
                    advice = (
                        "Run the model once on real data, so that its lazy modules take shape, and try again"
                    )
                    raise CannotDescribe(type(model).__name__, f"{name!r} has no shape yet", advice)
                same = place(tensor) if tensor.layout == torch.strided and tensor.numel() else id(tensor)
                if same in by_place:
                    by_place[same].names.append(name)
                else:
                    stored = parameter or key not in module._non_persistent_buffers_set
                    by_place[same] = NamedTensor([name], tensor, parameter, stored)
    return list(by_place.values())
