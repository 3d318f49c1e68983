"""Of which tensors is only a part in this process? Models that are divided by `fully_shard` and the like.

Such a parameter is a DTensor: it has the shape of the whole, and the numbers of a part. To describe a model,
shapes are enough, so `stand_in_whole` puts tensors without numbers in the place of parts. To load, each
process takes its own part of a whole tensor; to read, all processes put theirs together.
"""

import sys
from typing import TYPE_CHECKING, TypeGuard, cast

import torch
from torch import Tensor, nn

from modelkeeper.frontends.torch.recorder import META, NamedTensor

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def is_part(tensor: Tensor) -> "TypeGuard[DTensor]":
    """Is only a part of it here?"""
    module = sys.modules.get("torch.distributed.tensor")  # who has such a tensor has imported it
    return module is not None and isinstance(tensor, module.DTensor)


def reshard(model: nn.Module) -> None:
    """Let go of whole parameters that were gathered for a forward pass: the parts are what counts."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is not None:
        for module in model.modules():
            if isinstance(module, fsdp.FSDPModule):
                module.reshard()


def stand_in_whole(owned: list[NamedTensor], modules: list[nn.Module]) -> None:
    """Put a tensor without numbers, of the shape of the whole, in the place of each part."""
    whole: dict[int, Tensor] = {}
    for named in owned:
        if is_part(named.tensor):
            part, named.tensor = named.tensor, _shape_of(named.tensor)
            whole[id(part)] = named.tensor
    for module in modules if whole else ():
        for table in (module._parameters, module._buffers):
            for key, tensor in table.items():
                if tensor is not None and id(tensor) in whole:
                    table[key] = whole[id(tensor)]  # type: ignore[assignment]


def _shape_of(tensor: Tensor) -> Tensor:
    shape = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=META)
    return nn.Parameter(shape, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else shape


def whole_of(tensor: "DTensor") -> Tensor:
    """The whole tensor. All processes that have a part of it must call at the same time."""
    part, device = tensor.detach(), tensor.device_mesh.device_type
    if part.device.type != device:  # parts that wait on the CPU travel between devices
        part = part.to(device)
    return cast("DTensor", part).full_tensor()


def write_part(target: "DTensor", whole: Tensor) -> None:
    """Write this process's part of a whole tensor, in place. Nothing is sent."""
    from torch.distributed.tensor import distribute_tensor

    whole = whole.detach().to(target.dtype)
    part = distribute_tensor(whole, target.device_mesh, target.placements, src_data_rank=None)
    with torch.no_grad():
        target.to_local().copy_(part.to_local())
