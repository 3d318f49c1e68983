"""What is in a file that PyTorch wrote? Weights, what a model was made with, how good it was.

    checkpoint = read_checkpoint(path)      of torch.save: a state_dict, or a checkpoint with one in it
    checkpoint.tensors, checkpoint.arguments, checkpoint.metrics
    module, inputs = read_exported(path)    of torch.export.save
    aliases(model)                          all names of a model's stored tensors, tied ones too

Files may come from anyone: nothing is unpickled but tensors and plain data, unless the caller trusts them.
"""

import pickle
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from modelkeeper.errors import InvalidModelFile
from modelkeeper.frontends.torch.named_tensors import named_tensors
from modelkeeper.frontends.torch.read_load import Array, as_array

# Where checkpoints keep a model's weights, what it was made with, and how good it was.
_WEIGHTS = ("state_dict", "model_state_dict", "model_state", "model", "module", "net", "network", "weights")
_ARGUMENTS = ("hyper_parameters", "hparams", "config", "model_args", "model_kwargs", "args")
_MEASURED = ("metrics", "results")
_SAVE_AGAIN = "Save model.state_dict() instead, or say --trust: then code that lies in the file is run"
_FOREIGN = re.compile(r"GLOBAL ([\w.]+)")


@dataclass(frozen=True)
class Checkpoint:
    """What a file holds of a model."""

    tensors: dict[str, Array]
    arguments: Mapping[str, Any] = field(default_factory=dict)  # what its maker was called with
    metrics: Mapping[str, Any] = field(default_factory=dict)
    metric: Mapping[str, Any] | None = None  # the one that the best was chosen by
    module: nn.Module | None = None  # the model itself, of a file that is trusted


def read_checkpoint(path: Path, *, trust: bool = False) -> Checkpoint:
    """The weights in a file of torch.save, mapped into memory where that is possible.

    Args:
        path: The file.
        trust: May the file run code? Otherwise only tensors and plain data are read.

    Raises:
        InvalidModelFile: It cannot be read without running code, or holds no weights.
    """
    payload = _load(path, trust)
    if isinstance(payload, nn.Module):
        return Checkpoint({}, module=payload)
    found = _state(payload)
    if isinstance(found, nn.Module):
        return Checkpoint({}, module=found)
    if not found:
        advice = "Save model.state_dict(), by itself or as 'state_dict' of a dict"
        raise InvalidModelFile(str(path), f"there are no named tensors in it, but {_said(payload)}", advice)
    tensors = {name: as_array(name, value) for name, value in found.items() if isinstance(value, Tensor)}
    if found is payload or not isinstance(payload, Mapping):
        return Checkpoint(tensors)
    arguments: Mapping[str, Any] = next(
        (payload[key] for key in _ARGUMENTS if isinstance(payload.get(key), Mapping)), {}
    )
    return Checkpoint(tensors, arguments, _metrics(payload), _monitored(payload))


def read_exported(path: Path) -> tuple[nn.Module, Any]:
    """The module in a file of torch.export.save, and inputs that it runs on.

    Such a file is a program: PyTorch makes Python code of it and runs that. Only read what you trust.

    Raises:
        InvalidModelFile: It cannot be read.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.load(path)
        module = program.module()
    except Exception as problem:  # a damaged file may raise anything
        text = str(problem).partition("\n")[0]
        advice = "Write it again with torch.export.save, by the version of PyTorch that is to read it"
        raise InvalidModelFile(str(path), f"torch.export.load says: {text}", advice) from problem
    args, kwargs = program.example_inputs or ((), {})
    return module, dict(kwargs) if kwargs and not args else tuple(args)


def aliases(model: nn.Module) -> dict[str, str]:
    """The name that graphs use, by all names of each stored tensor of a model."""
    return {name: named.names[0] for named in named_tensors(model) if named.stored for name in named.names}


def _load(path: Path, trust: bool) -> Any:
    mapped = zipfile.is_zipfile(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=not trust, mmap=mapped or None)
    except pickle.UnpicklingError as problem:
        foreign = _FOREIGN.search(str(problem))
        what = foreign[1] if foreign else str(problem).partition("\n")[0]
        raise InvalidModelFile(
            str(path), f"it holds more than tensors and plain data: {what}", _SAVE_AGAIN
        ) from problem
    except Exception as problem:  # a damaged file may raise anything
        text = str(problem).partition("\n")[0] or type(problem).__name__
        raise InvalidModelFile(str(path), f"torch.load says: {text}", "Write it again") from problem


def _state(payload: Any) -> Mapping[str, Any] | nn.Module | None:
    """The part of a checkpoint that holds the weights."""
    if not isinstance(payload, Mapping):
        return None
    if _is_state(payload):
        return payload
    for key in (*_WEIGHTS, *payload):
        inner = payload.get(key)
        if isinstance(inner, nn.Module) or (_is_state(inner) and not str(key).startswith("optim")):
            return inner
    return None


def _is_state(value: Any) -> bool:
    """Is it a dict of tensors by name?"""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        return False
    tensors = sum(isinstance(item, Tensor) for item in value.values())
    return tensors > 0 and 2 * tensors >= len(value)  # beside them, extra states of modules


def _said(payload: Any) -> str:
    if isinstance(payload, Mapping):
        return f"a dict of {', '.join(map(repr, list(payload)[:5]))}"
    return f"a {type(payload).__name__}"


def _metrics(payload: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a checkpoint: of a dict of metrics, and those that stand beside the weights."""
    inner: Mapping[str, Any] = next(
        (payload[key] for key in _MEASURED if isinstance(payload.get(key), Mapping)), {}
    )
    return dict(_numbers({**payload, **inner}))


def _numbers(values: Mapping[Any, Any]) -> Iterator[tuple[str, float]]:
    for key, value in values.items():
        single = isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex()
        if isinstance(key, str) and (
            single or (isinstance(value, int | float) and not isinstance(value, bool))
        ):
            yield key, float(value)


def _monitored(payload: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What Lightning chose the best checkpoint by, and its value when this one was written."""
    callbacks = payload.get("callbacks")
    for key, state in callbacks.items() if isinstance(callbacks, Mapping) else ():
        if not isinstance(state, Mapping) or not isinstance(state.get("monitor"), str):
            continue
        value = state.get("current_score", state.get("best_model_score"))
        mode = re.search(r"'mode': '(min|max)'", str(key))
        if mode and isinstance(value, Tensor) and value.numel() == 1:
            lower = mode[1] == "min"
            return {"name": state["monitor"], "value": float(value), "lower_is_better": lower}
    return None
