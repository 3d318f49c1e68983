"""Which model lies in a folder of transformers? Its class is named by config.json.

    model, notes = load_snapshot(Path("checkpoints/bert"))

Nothing is fetched from anywhere, and no code that lies in the folder is run: a class that transformers itself
does not have cannot be loaded. Shards, old names of tensors and tied weights are its business.
"""

import contextlib
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import transformers
from transformers.utils import logging

from modelkeeper.errors import InvalidModelFile

_SHOWN = 3


def load_snapshot(folder: Path) -> tuple[Any, tuple[str, ...]]:
    """The model in a folder, with its weights, in the type of number that it is stored in; and what to know.

    Raises:
        InvalidModelFile: transformers has no such class, or the weights do not fit it.
    """
    kind = _class(folder)
    try:
        with _quietly():
            model, info = kind.from_pretrained(
                folder,
                local_files_only=True,
                trust_remote_code=False,
                weights_only=True,
                output_loading_info=True,
            )
    except Exception as problem:  # whatever lies in the folder
        text = " ".join(str(problem).split())[:300]
        advice = f"See whether transformers.{kind.__name__}.from_pretrained loads it"
        raise InvalidModelFile(str(folder), f"transformers say: {text}", advice) from problem
    missing = sorted(map(str, info.get("missing_keys", ())))
    if missing:
        named = ", ".join(missing[:_SHOWN]) + (" ..." if len(missing) > _SHOWN else "")
        advice = "Name the class that was trained under `architectures` in config.json"
        problem_text = f"{len(missing)} tensors of {kind.__name__} are not in it: {named}"
        raise InvalidModelFile(str(folder), problem_text, advice)
    unused = len(info.get("unexpected_keys", ()))
    return model, (f"{unused} of its tensors are not in {kind.__name__}",) if unused else ()


def _class(folder: Path) -> Any:
    """The class that config.json names; without a name, the bare model of its type."""
    config = json.loads((folder / "config.json").read_bytes())
    names = [name for name in config.get("architectures") or () if isinstance(name, str)]
    for name in names:
        kind = getattr(transformers, name, None)
        if inspect.isclass(kind) and issubclass(kind, transformers.PreTrainedModel):
            return kind
    if config.get("auto_map"):
        problem = f"its class {', '.join(names) or 'model'} is code that lies in the folder, which is not run"
        raise InvalidModelFile(str(folder), problem, "Import its weights with --model and a factory of yours")
    if names:
        problem = f"transformers {transformers.__version__} has no {', '.join(names)}"
        raise InvalidModelFile(str(folder), problem, "Install the version that it was made with")
    return transformers.AutoModel


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """No bars and no advice by transformers meanwhile: what matters is said by us."""
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
