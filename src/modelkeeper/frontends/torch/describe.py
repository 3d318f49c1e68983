"""Describe a PyTorch model: run it once on shapes, listen, and write down what it is.

    recorder (what ran) -> trace (values, no dead code) -> `modelkeeper.tracing.describe` -> Graph

The model, its modes, hooks, devices and random state are afterwards as they were. Where an operation
cannot run on shapes, the model runs once for real on the CPU.
"""

import warnings
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from modelkeeper.errors import CannotDescribe
from modelkeeper.frontends.torch.inputs import Inputs, candidates
from modelkeeper.frontends.torch.materialise import fill_tables
from modelkeeper.frontends.torch.named_tensors import named_tensors
from modelkeeper.frontends.torch.recorder import (
    CPU,
    META,
    NamedTensor,
    Recorder,
    Recording,
    map_tensors,
    tensors_in,
)
from modelkeeper.frontends.torch.shards import reshard, stand_in_whole
from modelkeeper.frontends.torch.side_effects import InParts, modules_by_name, without_side_effects
from modelkeeper.frontends.torch.trace import TorchTrace, make_trace, owned_tensor
from modelkeeper.graph import Graph, Note
from modelkeeper.text import first_line
from modelkeeper.tracing.describe import Account, account_for
from modelkeeper.tracing.describe import describe as describe_trace
from modelkeeper.tracing.trace import Trace

Outputs = Callable[[Any], Any] | str | None
_Ran = tuple[Recording, Inputs, Any]

_ADVICE = (
    "Pass example_inputs: one tensor, a tuple of positional arguments, or a dict of named ones, "
    "e.g. describe(model, torch.zeros(1, 3, 32, 32))"
)


def describe(model: nn.Module, example_inputs: Any = None, *, outputs: Outputs = None) -> Graph:
    """The graph of a model, without its weights.

    Args:
        model: Any module; it is not changed. Wrappers (DataParallel, torch.compile ...) are looked through.
        example_inputs: A tensor, a tuple of positional arguments, or a dict of named ones. Only shapes and
            dtypes count. Default: found from the model itself.
        outputs: Which of what the model returns are its outputs: the name of a field, or a function from
            the returned object to tensors. Default: the logits of a Hugging Face output, or its first
            field; otherwise every tensor that is returned.

    Raises:
        CannotDescribe: The model did not run on the inputs there were; the message says what to pass.
    """
    return describe_trace(trace_model(model, example_inputs, outputs=outputs))


@dataclass(frozen=True, slots=True)
class TorchAccount:
    """The graph of a model with the trace it was made from, and that trace's tensors in torch."""

    account: Account
    torch: TorchTrace

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self.account.graph


def study(
    model: nn.Module, example_inputs: Any = None, *, outputs: Outputs = None, real: bool = False
) -> TorchAccount:
    """Describe a model, and keep the trace and axes behind its graph; `real`: run on numbers."""
    traced = listen(model, example_inputs, outputs=outputs, real=real)
    return TorchAccount(account_for(traced.trace), traced)


def trace_model(model: nn.Module, example_inputs: Any = None, *, outputs: Outputs = None) -> Trace:
    """Trace a model's forward pass as plain data over the vocabulary: see `describe`."""
    return listen(model, example_inputs, outputs=outputs).trace


def listen(
    model: nn.Module, example_inputs: Any = None, *, outputs: Outputs = None, real: bool = False
) -> TorchTrace:
    """Trace a model's forward pass, and keep the tensors and operators of torch beside the trace."""
    reshard(model)  # before what is there is noted, to be put back
    with without_side_effects(model) as bare:
        fill_tables(bare)
        owned = named_tensors(bare)
        stand_in_whole(owned, [module for _, module in modules_by_name(bare)])
        recording, inputs, returned, notes = _run(bare, owned, example_inputs, real)
        traced = _traced(recording, inputs, pick_outputs(returned, outputs))
        if any(constant.unseen for constant in traced.used_constants()):
            recording, inputs, returned = _record(bare, owned, inputs, real=False, in_parts=True)
            traced = _traced(recording, inputs, pick_outputs(returned, outputs))
    traced.trace.tensors = [owned_tensor(tensor) for tensor in owned]
    traced.trace.input_names = _input_names(inputs)
    traced.trace.notes, traced.trace.ran_on = notes, inputs
    traced.tensors = {tensor.names[0]: tensor.tensor for tensor in owned}
    return traced


def _traced(recording: Recording, inputs: Inputs, picked: Any) -> TorchTrace:
    tensors = list(tensors_in((inputs.args, dict(inputs.kwargs))))
    return make_trace(recording, tensors, tensors_in(picked))


def example(shape: Iterable[int], dtype: str = "float32") -> Tensor:
    """A tensor to pass as example input: its shape and dtype are all that counts."""
    return torch.empty(tuple(shape), dtype=getattr(torch, dtype), device=META)


def _run(
    model: nn.Module, owned: list[NamedTensor], example_inputs: Any, real: bool
) -> tuple[Recording, Inputs, Any, list[Note]]:
    """Record the first run that works: on shapes if possible, for real otherwise."""
    given = example_inputs is not None
    failures: list[tuple[Inputs, Exception]] = []
    for inputs in [Inputs.of(example_inputs)] if given else candidates(model):
        try:
            return (*_unwarned(model, owned, inputs, real), [])
        except Exception as error:  # noqa: BLE001 (whatever the user's code raises on shapes)
            if not given and not _needs_values(error):
                failures.append((inputs, error))
                continue
            reason = f"ran for real on the CPU: {first_line(error)}"
        try:
            return (*_unwarned(model, owned, inputs, True), [Note("fallback", "", reason)])
        except Exception as error:  # noqa: BLE001 (whatever the user's code raises)
            failures.append((inputs, error))
    name = type(model).__name__
    if not failures:
        raise CannotDescribe(name, "nothing in it says what its inputs look like", _ADVICE)
    inputs, cause = failures[0]
    tried = (
        f"on ({inputs})" if given else f"on any of {len(failures)} guessed inputs, the first being ({inputs})"
    )
    raise CannotDescribe(name, f"it did not run {tried}: {first_line(cause)}", _ADVICE) from cause


def _unwarned(model: nn.Module, owned: list[NamedTensor], inputs: Inputs, real: bool) -> _Ran:
    """Record a run; warnings that the user's filters make errors of are for a run of the user's own."""
    try:
        return _record(model, owned, inputs, real=real)
    except Warning:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            return _record(model, owned, inputs, real=real)


def _record(
    model: nn.Module, owned: list[NamedTensor], inputs: Inputs, *, real: bool, in_parts: bool = False
) -> _Ran:
    for tensor in owned:
        tensor.stand_in = None
    change = _real if real else _shape
    inputs = Inputs(map_tensors(inputs.args, change), tuple(map_tensors(dict(inputs.kwargs), change).items()))
    recorder = Recorder(owned, real=real)
    # On shapes attention comes in its parts anyway; it takes time to listen to every function.
    with InParts() if real or in_parts else nullcontext(), recorder:
        returned = model(*inputs.args, **dict(inputs.kwargs))
    return recorder.recording, inputs, returned


def _shape(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=META)


def _real(tensor: Tensor) -> Tensor:
    if tensor.is_meta:
        return torch.zeros(tensor.shape, dtype=tensor.dtype)
    return tensor.detach().to(CPU).clone()


def _needs_values(error: Exception) -> bool:
    """Does the error say that shapes were not enough, rather than that they were wrong?"""
    text = str(error).lower()
    words = (
        "meta",
        "data-dependent",
        "dtype",
        "input type",
    )  # types: a model's own autocast casts only numbers
    return isinstance(error, NotImplementedError) or any(word in text for word in words)


def pick_outputs(returned: Any, outputs: Outputs = None) -> Any:
    """Pick the outputs out of what a model returned."""
    if callable(outputs):
        return outputs(returned)
    if isinstance(outputs, str):
        field = returned.get(outputs) if hasattr(returned, "get") else getattr(returned, outputs, None)
        if field is None:
            advice = "Name a field of what it returns as `outputs`"
            raise CannotDescribe(
                "the model", f"it returned no {outputs!r} but a {type(returned).__name__}", advice
            )
        return field
    if hasattr(returned, "to_tuple"):  # a Hugging Face output: states and losses beside the result
        return returned.get("logits") if returned.get("logits") is not None else returned.to_tuple()[0]
    if hasattr(returned, "__dataclass_fields__"):
        return vars(returned)
    return returned


def _input_names(inputs: Inputs) -> list[str]:
    """A name for each tensor among the inputs."""
    names = ["input"] * len(list(tensors_in(inputs.args)))
    for name, value in inputs.kwargs:
        names += [name] * len(list(tensors_in(value)))
    return names
