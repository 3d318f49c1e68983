"""Which tensors of a PyTorch model are frozen: not to be trained, and so not to be replaced?

A parameter is frozen if it does not require gradients. A buffer never does, so its module decides: it is
frozen if the module has parameters, and all of them are. So are the running statistics of a batch norm in a
backbone that was frozen after pretrained weights were loaded; those of a batch norm in training are not.
Parameters of whole numbers cannot require gradients either, and go by the others of their module.
"""

from torch import Tensor, nn

from modelkeeper.frontends.torch.named_tensors import named_tensors
from modelkeeper.frontends.torch.shards import reshard
from modelkeeper.frontends.torch.side_effects import modules_by_name


def frozen(model: nn.Module) -> frozenset[str]:
    """The names of the stored tensors that are frozen; all parameters, if every one of them is."""
    reshard(model)
    still: set[int] = set()
    for _, module in modules_by_name(model):
        parameters = [tensor for tensor in module._parameters.values() if tensor is not None]
        learning = [tensor for tensor in parameters if _can_learn(tensor)]
        still |= {id(tensor) for tensor in learning if not tensor.requires_grad}
        if parameters and not any(tensor.requires_grad for tensor in learning):
            still |= {id(tensor) for tensor in parameters}
            still |= {id(tensor) for tensor in module._buffers.values() if tensor is not None}
    return frozenset(
        named.names[0]
        for named in named_tensors(model)
        if named.stored and id(named.tensor) in still and not named.tensor.is_meta  # it has nothing to keep
    )


def _can_learn(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
