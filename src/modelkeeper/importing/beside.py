"""What do the files beside a model say of it? How good it is, and what it was made with.

    measured({"eval_accuracy": 0.9, "epoch": 3})        {"metrics": {"eval_accuracy": 0.9}}
    trained(folder)                                     what the Trainer of Hugging Face wrote
    arguments(file)                                     config.json, hparams.json or FILE.json beside it

What cannot be read says nothing: a model is imported without it.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from modelkeeper.errors import InvalidMetric
from modelkeeper.policy.quality import lowers, number

_MOST = 64 * 2**20  # bytes of a file that is read for what it says
_OF_TRAINING = frozenset({"loss", "train_loss"})  # says nothing of other data


def read_json(path: Path) -> Any:
    """What a JSON file holds; None if it cannot be read."""
    try:
        if path.stat().st_size > _MOST:
            return None
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def measured(numbers: Mapping[str, Any], chosen: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What numbers say of a model's quality, as `meta` says it: those whose names are metrics.

    Args:
        numbers: Metrics, counters and times.
        chosen: The metric that the best was chosen by, if that is known.
    """
    metrics = {}
    for name, value in numbers.items():
        try:
            if lowers(name) is not None and name not in _OF_TRAINING:
                metrics[name] = number(name, value)
        except InvalidMetric:
            continue
    meta: dict[str, Any] = {"metrics": metrics} if metrics else {}
    if chosen is not None and math.isfinite(chosen["value"]):
        meta["metric"] = dict(chosen)
    return meta


def trained(folder: Path) -> dict[str, Any]:
    """What the Trainer measured last before it wrote a folder."""
    state = read_json(folder / "trainer_state.json")
    history = state.get("log_history") if isinstance(state, Mapping) else None
    for entry in reversed(history if isinstance(history, list) else []):
        if isinstance(entry, Mapping) and any(str(key).startswith("eval_") for key in entry):
            return measured({str(key): value for key, value in entry.items() if str(key).startswith("eval_")})
    return {}


def arguments(file: Path) -> dict[str, Any]:
    """What a model was made with, as a JSON file beside its weights says."""
    for name in (f"{file.stem}.json", "hparams.json", "config.json"):
        said = read_json(file.with_name(name))
        if isinstance(said, Mapping):
            return {str(key): value for key, value in said.items()}
    return {}
