"""Which tensor of a file is which of a model? By name, whatever the file puts before all names.

    fit(tensors, {"0.weight": "0.weight"}, "sd.pt")     the same tensors, by the names of the model

A wrapper adds something before every name (`module.`, `model.`, `_orig_mod.`), a Lightning module keeps the
model as `net.` beside losses and metrics that have tensors too. What is left out or added is found by
trying: the way by which most names fit. Then all of the model must be in the file, and of what the file has
under that prefix all must be the model's: a file of a deeper model does not fit a shallower one.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from modelkeeper.errors import InvalidModelFile

_COMPILED = "_orig_mod."  # what torch.compile puts into names
_COUNTS = "num_batches_tracked"  # of batch norms; old files lack it, and nothing depends on it
_DEPTH, _MOST_PREFIXES, _SHOWN = 3, 64, 3
_ADVICE = "Give the factory that made this model with --model, with its arguments"


@dataclass(frozen=True)
class Fit:
    """The tensors of a file by the names of a model."""

    tensors: dict[str, Any]
    beside: tuple[str, ...] = ()  # names in the file that are of no part of the model


def fit(
    tensors: Mapping[str, Any],
    aliases: Mapping[str, str],
    file: str,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> Fit:
    """Give a file's tensors the names of a model.

    Args:
        tensors: Of the file, by its names.
        aliases: The names of the model: by each name that a tensor has, the one to use.
        file: What errors call it.
        shapes: Of the model's tensors.

    Raises:
        InvalidModelFile: The file lacks tensors of the model, has others, or others of other shapes.
    """
    plain = {name if name in aliases else name.replace(_COMPILED, ""): name for name in tensors}
    strip, add = _way(plain, aliases)
    named: dict[str, Any] = {}
    unknown, beside = [], []
    for name, original in plain.items():
        if not name.startswith(strip):
            beside.append(original)
            continue
        home = aliases.get(add + name.removeprefix(strip))
        if home is None:
            unknown.append(original)
        else:
            named.setdefault(home, tensors[original])
    missing = [
        name for name in dict.fromkeys(aliases.values()) if name not in named and not name.endswith(_COUNTS)
    ]
    wrong = [name for name, value in named.items() if shapes and tuple(value.shape) != shapes.get(name)]
    problems = []
    if missing:
        problems.append(f"{len(missing)} tensors of the model are not in it: {_some(missing)}")
    if unknown:
        problems.append(f"{len(unknown)} of its tensors are not in the model: {_some(unknown)}")
    if wrong and shapes:
        texts = [f"{name} {tuple(named[name].shape)} instead of {shapes.get(name)}" for name in wrong]
        problems.append(f"{len(wrong)} tensors have other shapes: {_some(texts)}")
    if problems:
        raise InvalidModelFile(file, f"it does not fit the model: {'; '.join(problems)}", _ADVICE)
    return Fit(named, tuple(beside))


def _way(names: Iterable[str], aliases: Mapping[str, str]) -> tuple[str, str]:
    """What to leave out before the names of a file, and what to put there, so that most of them fit."""
    names = list(names)
    ways = [("", ""), *((prefix, "") for prefix in _prefixes(names))]
    ways += [("", prefix) for prefix in _prefixes(aliases)]

    def fitting(way: tuple[str, str]) -> int:
        strip, add = way
        return sum(name.startswith(strip) and add + name.removeprefix(strip) in aliases for name in names)

    return max(ways, key=fitting)  # of equals the first: nothing is changed without a reason


def _prefixes(names: Iterable[str]) -> list[str]:
    """What many names begin with, up to a dot, the commonest first."""
    counted: Counter[str] = Counter()
    for name in names:
        parts = name.split(".")[:-1]
        counted.update(".".join(parts[: depth + 1]) + "." for depth in range(min(len(parts), _DEPTH)))
    return [prefix for prefix, _ in counted.most_common(_MOST_PREFIXES)]


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(islice(names, _SHOWN)) + more
