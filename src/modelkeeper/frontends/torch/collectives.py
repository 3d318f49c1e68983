"""How do the numbers of a model get from one process to all, and from all to one?

Tensor by tensor, so that no process holds more than one whole tensor beside its own part of the model. Every
function here is a collective: all processes of the groups call it at the same time, or those that do wait.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from modelkeeper.frontends.torch.named_tensors import named_tensors
from modelkeeper.frontends.torch.read_load import as_array, as_tensor
from modelkeeper.frontends.torch.recorder import CPU
from modelkeeper.frontends.torch.shards import is_part, whole_of, write_part
from modelkeeper.weights import Array


class Collectives:
    """The groups along each axis of a mesh of processes; the first process of each is the source."""

    def __init__(self, groups: Sequence[dist.ProcessGroup]) -> None:
        self._groups = groups
        # "cpu:gloo,cuda:nccl" -> what lies on these devices can be sent
        backends = dist.get_backend_config(groups[0]).split(",")
        self._devices = [backend.partition(":")[0] for backend in backends]

    def spread(self, tensor: Tensor) -> Tensor:
        """The source's numbers of a tensor, which has the same shape and dtype everywhere.

        It goes as bytes, so that every dtype goes, through a device that the group sends from. What comes
        may share memory with what was given.
        """
        device = tensor.device if tensor.device.type in self._devices else torch.device(self._devices[0])
        sent = tensor.detach().to(device).contiguous()
        for group in self._groups:
            dist.broadcast(sent.reshape(-1).view(torch.uint8), group=group, group_src=0)
        return sent

    def agree(self, yes: bool) -> bool:
        """What the source says."""
        return bool(self.spread(torch.tensor([yes], device=self._devices[0])).item())

    def even_out(self, model: nn.Module) -> None:
        """Give all processes the source's numbers, in place."""
        with torch.no_grad():
            for named in named_tensors(model):
                tensor = named.tensor.detach()
                plain = tensor.layout == torch.strided and not (tensor.is_meta or tensor.is_quantized)
                if plain and tensor.numel():
                    sent = self.spread(tensor)
                    if sent.data_ptr() != tensor.data_ptr():
                        tensor.copy_(sent)

    def deal(self, targets: Sequence[Tensor], values: Mapping[int, Any]) -> None:
        """Write whole tensors that the source has into what each process has of them, in place.

        `targets`: in the same order everywhere. `values`: at the source one for each, by its number.
        """
        with torch.no_grad():
            for number, target in enumerate(targets):
                if not target.numel():
                    continue
                if number in values:
                    whole = as_tensor("", values[number]).to(target.dtype)
                else:
                    whole = torch.empty(target.shape, dtype=target.dtype, device=CPU)
                sent = self.spread(whole)
                if is_part(target):
                    write_part(target, sent)
                else:
                    target.detach().copy_(sent)

    def gather(self, model: nn.Module, *, source: bool) -> Iterator[tuple[str, Array]]:
        """Every stored tensor by name, put together from its parts; elsewhere than at the source nothing.

        Whoever reads at the source may stop early: close this, and the others stop as well.
        """
        stored = [named for named in named_tensors(model) if named.stored]
        left = sum(is_part(named.tensor) for named in stored)
        try:
            for name, tensor in ((named.names[0], named.tensor) for named in stored):
                if is_part(tensor):
                    if not self.agree(True):
                        return
                    left -= 1
                    tensor = whole_of(tensor)
                if source:
                    yield name, as_array(name, tensor)
        finally:
            if source and left:
                self.agree(False)
