"""Has the Trainer's model, now that the training has ended, the weights that were measured as the best?

    measured_of(model, args, state)     {"eval_loss": 0.31, ...}, or nothing if that cannot be said

With `load_best_model_at_end` the Trainer reads its best checkpoint, and lets names pass that do not fit: of
models whose files spell names otherwise than their modules (ViT) it then reads only a part. Such a mixture
has never been measured. So the names in the checkpoint are looked at here.
"""

import json
from pathlib import Path
from typing import Any

from safetensors import safe_open

_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"


def measured_of(model: Any, args: Any, state: Any) -> dict[str, Any]:
    """What was measured of the weights that the model has, if they were read from the best checkpoint."""
    if not args.load_best_model_at_end or state.best_model_checkpoint is None:
        return {}
    names = _names(Path(state.best_model_checkpoint))
    if not names or not names <= set(model.state_dict()):
        return {}
    logs = [log for log in state.log_history if log.get("step") == state.best_global_step]
    return {name: value for log in logs for name, value in log.items() if name.startswith("eval_")}


def _names(checkpoint: Path) -> set[str]:
    """The names of the tensors in a checkpoint; none if there are no files that can be read safely."""
    if (checkpoint / _WEIGHTS).is_file():
        with safe_open(checkpoint / _WEIGHTS, framework="np") as file:
            return set(file.keys())
    if (checkpoint / _INDEX).is_file():
        return set(json.loads((checkpoint / _INDEX).read_bytes())["weight_map"])
    return set()
