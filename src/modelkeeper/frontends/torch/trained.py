"""Is a PyTorch model trained already, or fresh from its initialisation? What are the signs?

Only small tensors are looked at: norms and biases. Rules that people initialise by leave them constant, or
(the default of linear and convolutional layers) uniform within 1/√(inputs); training does not.

    loaded    Hugging Face has marked parameters as loaded from a checkpoint
    batches   batch norms have counted more batches than a trial run makes
    norms     gains and shifts of norms differ from unit to unit
    biases    those of layers lie beyond the bound of their initialisation, or well within it without being
              constant

One tensor is no sign: half of those of a kind must agree, and more than half of biases. A model that was
trained for a few steps, or one without norms and biases, looks fresh.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from modelkeeper.frontends.torch.shards import reshard
from modelkeeper.frontends.torch.side_effects import modules_by_name

TRIALS = 10  # batches that a model may have seen without being trained: a trial run, a look at its shapes
FEWEST = 4  # units that say something
TINY = 1e-4  # biases below are an initialisation of some vision transformers
HALF = 16  # units of which a uniform draw leaves none beyond half of its bound by chance of 1 in 65,536


def trained(model: nn.Module) -> str:
    """The signs that a model is trained already; "" if there are none, or if it has no numbers yet."""
    batches = 0
    norms: list[bool] = []
    biases: list[bool] = []
    reshard(model)
    for _, module in modules_by_name(model):
        held = {key: value.detach() for key, value in _small(module)}
        if isinstance(module, nn.modules.batchnorm._NormBase) and "num_batches_tracked" in held:
            batches = max(batches, int(held["num_batches_tracked"]))
        weight, bias = module._parameters.get("weight"), held.get("bias")
        if "Norm" in type(module).__name__ and "weight" in held:
            shifted = bias is None or _differs(bias)
            norms.append(_differs(held["weight"]) and shifted)
        elif bias is not None and weight is not None and weight.dim() > 1:
            inputs = weight[0].numel() or 1
            biases.append(_moved(bias, inputs**-0.5))
    signs = []
    parameters = [*model.parameters()]
    if sum(getattr(parameter, "_is_hf_initialized", False) for parameter in parameters) * 2 > len(parameters):
        signs.append("its weights were loaded from a checkpoint")
    if batches >= TRIALS:
        signs.append(f"its batch norms have counted {batches:,} batches")
    if norms and sum(norms) * 2 >= len(norms):
        signs.append(f"{sum(norms)} of {len(norms)} norms differ from unit to unit")
    if len(biases) > 1 and sum(biases) * 2 > len(biases):
        signs.append(f"{sum(biases)} of {len(biases)} biases are not as they are initialised")
    return "; ".join(signs)


def _small(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """A module's own tensors that have one axis or none, and numbers."""
    for key, value in (*module._parameters.items(), *module._buffers.items()):
        if value is None or type(value) not in (Tensor, nn.Parameter) or value.is_meta:
            continue
        plain = value.layout == torch.strided and not value.is_quantized
        if plain and value.dim() < 2 and value.numel():
            yield key, value


def _differs(values: Tensor) -> bool:
    """Are these numbers, of which there are some, not all the same?"""
    return values.numel() >= FEWEST and bool((values != values[0]).any())


def _moved(bias: Tensor, bound: float) -> bool:
    """Is a bias neither constant nor a uniform draw within its bound?"""
    if not _differs(bias):
        return False
    largest = float(bias.abs().max())
    return largest > 1.02 * bound or (bias.numel() >= HALF and TINY < largest < bound / 2)
