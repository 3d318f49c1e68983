"""What does a model compute? Run it on random numbers, compare two, re-estimate what norms have seen.

difference(first, second)        do two models compute the same?
recalibrate(model, batches)      statistics of batch norms from data, without a gradient step
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from modelkeeper.errors import CannotDescribe
from modelkeeper.frontends.torch.describe import pick_outputs
from modelkeeper.frontends.torch.inputs import Inputs, candidates
from modelkeeper.frontends.torch.private_random import PrivateRandom
from modelkeeper.frontends.torch.random_state import keep_random_state
from modelkeeper.frontends.torch.recorder import map_tensors, tensors_in
from modelkeeper.frontends.torch.side_effects import InParts, unwrap, without_side_effects

TOKENS = 8  # random tokens are drawn from the first few: every vocabulary has them


def run_on_random(model: nn.Module, example_inputs: Any = None, seed: int = 0) -> tuple[Inputs, Tensor]:
    """Run a model for real, in evaluation mode, on random numbers in the form of its inputs.

    Returns the inputs and all outputs in one vector. Inputs that hold numbers are used as they are.
    """
    given = [Inputs.of(example_inputs)] if example_inputs is not None else candidates(model)
    problem: Exception | None = None
    with without_side_effects(model) as bare, torch.inference_mode(False), torch.no_grad():
        for inputs in given:
            filled = _filled(inputs, seed)
            try:
                with InParts(), PrivateRandom(seed):
                    returned = bare(*filled.args, **dict(filled.kwargs))
            except Exception as error:  # noqa: BLE001 (whatever the user's code raises)
                problem = problem or error
                continue
            return filled, torch.cat(
                [t.detach().reshape(-1).double() for t in tensors_in(pick_outputs(returned))]
            )
    raise CannotDescribe(
        type(model).__name__, f"it did not run: {problem}", "Pass example_inputs"
    ) from problem


def difference(
    first: nn.Module | Sequence[nn.Module], second: nn.Module, example_inputs: Any = None
) -> float:
    """By how much two models differ on random inputs, relative to how much their outputs vary.

    Infinite if their outputs have different shapes. Of several first ones, their mean is compared.
    """
    models = [first] if isinstance(first, nn.Module) else list(first)
    inputs, output = run_on_random(models[0], example_inputs)
    outputs = [output, *(run_on_random(model, inputs)[1] for model in models[1:])]
    _, computed = run_on_random(second, inputs)
    if any(output.shape != computed.shape for output in outputs):
        return float("inf")
    expected = torch.stack(outputs).mean(0)
    scale = (expected - expected.mean()).abs().max().item()
    return (expected - computed).abs().max().item() / (scale or 1.0)


def recalibrate(model: nn.Module, batches: Iterable[Any]) -> int:
    """Estimate the running statistics of all batch norms anew, as averages over these batches.

    After an inexact transfer the statistics belong to other activations. Nothing but they is changed: no
    gradient, no other layer, and modes and momenta are put back.

    Args:
        model: Any module.
        batches: What the model takes: tensors, tuples (x, y) of which x is used, or dicts of arguments.

    Returns:
        The number of norms that were re-estimated.
    """
    bare = unwrap(model)
    norms = [
        m
        for m in bare.modules()
        if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.running_mean is not None
    ]
    if not norms:
        return 0
    batches = iter(batches)
    first = next(batches, None)
    if first is None:
        raise ValueError("recalibrate needs at least one batch; nothing was changed")
    modes = [(module, module.training) for module in bare.modules()]
    momenta = [norm.momentum for norm in norms]
    try:
        bare.eval()
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # a plain average over all batches
            norm.train()
        with keep_random_state(), torch.no_grad():
            for batch in itertools.chain([first], batches):
                if isinstance(batch, dict):
                    bare(**batch)
                else:
                    bare(batch[0] if isinstance(batch, (tuple, list)) else batch)
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        for module, training in modes:
            module.training = training
    return len(norms)


def _filled(inputs: Inputs, seed: int) -> Inputs:
    """Random numbers where the inputs have shapes only."""
    generator = torch.Generator().manual_seed(seed)

    def fill(tensor: Tensor) -> Tensor:
        if not tensor.is_meta:
            return tensor
        if tensor.is_floating_point():
            return torch.randn(tensor.shape, generator=generator, dtype=torch.float32).to(tensor.dtype)
        return torch.randint(0, TOKENS, tensor.shape, generator=generator, dtype=tensor.dtype)

    return Inputs(map_tensors(inputs.args, fill), tuple(map_tensors(dict(inputs.kwargs), fill).items()))
