"""Which folders hold a model that MLflow logged? Those with a file MLmodel, in a run or under its models.

    mlruns/EXPERIMENT/models/m-ID/artifacts/MLmodel        since MLflow 3; its name is in meta.yaml
    mlruns/EXPERIMENT/RUN/artifacts/NAME/MLmodel           before

What is inside is of another kind: ONNX, Keras, transformers, a file of PyTorch. How good the model is, is
read from the files of its run, where a tracking store of files keeps them. MLflow itself is not needed.
"""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from modelkeeper.errors import InvalidModelFile
from modelkeeper.importing.beside import measured, read_json
from modelkeeper.importing.kinds.huggingface import HuggingFace
from modelkeeper.importing.kinds.weights import Weights
from modelkeeper.importing.kinds.whole import Exported, Keras, Onnx
from modelkeeper.importing.things import Claim, Listing, Source, Terms, Thing

_MLMODEL = "MLmodel"
# Where the flavours keep a model that can be read.
_FLAVOURS = {
    "model.onnx": Onnx.name,
    "data/model.keras": Keras.name,
    "data/model.pt2": Exported.name,
    "data/model.pth": Weights.name,
}
_ADVICE = "Known are the flavours onnx, keras, transformers and pytorch"
_MOST = 1 << 20  # bytes of a file that is read for a line in it


class MLflow:
    """Folders that `mlflow.<flavour>.log_model` and `save_model` write."""

    name = "MLflow"

    def claim(self, folder: Listing) -> Claim | None:
        """What the flavours of a folder keep."""
        if _MLMODEL not in folder.files:
            return None
        inner = self._inside(folder.path) or Thing(
            self.name,
            folder.path,
            (folder.files[_MLMODEL],),
            "",
            problem=f"it has no flavour that can be read ({', '.join(_flavours(folder.path))})",
            advice=_ADVICE,
        )
        thing = dataclasses.replace(
            inner, path=folder.path, name=_name(folder.path), within=self.name, meta=_metrics(folder.path)
        )
        return Claim((thing,), whole=True)

    def _inside(self, folder: Path) -> Thing | None:
        for place, kind in _FLAVOURS.items():
            if (folder / place).is_file():
                return Thing(kind, folder, (folder / place,), "")
        if (folder / "model").is_dir():
            claim = HuggingFace().claim(Listing.of(folder / "model"))
            return claim.things[0] if claim and claim.things else None
        return None

    def holds(self, content: str) -> bool:
        """No single file."""
        return False

    def open(self, thing: Thing, terms: Terms) -> Source:
        """Never: what can be read is of another kind."""
        raise InvalidModelFile(str(thing.path), thing.problem, _ADVICE)


def _line(path: Path, key: str) -> str:
    """The value of a plain line `key: value` of a YAML file; "" if there is none."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            found = re.search(rf"^{key}: *'?([^'\n]*?)'? *$", file.read(_MOST), re.MULTILINE)
    except OSError:
        return ""
    return found[1] if found and found[1] != "null" else ""


def _flavours(folder: Path) -> list[str]:
    text = (folder / _MLMODEL).read_text(encoding="utf-8", errors="replace")[:_MOST]
    block = re.search(r"^flavors:\n((?: .*\n?)*)", text, re.MULTILINE)
    return re.findall(r"^  (\w+):", block[1], re.MULTILINE) if block else []


def _name(folder: Path) -> str:
    """What a model is called: in the registry, by its run, or as its folder."""
    logged = folder.absolute().parent  # of MLflow 3
    versions = read_json(logged / "tags" / "mlflow.modelVersions")
    if isinstance(versions, list) and versions and isinstance(versions[-1], dict):
        return str(versions[-1].get("name") or folder.name)
    return _line(logged / "meta.yaml", "name") or folder.absolute().name


def _metrics(folder: Path) -> dict[str, Any]:
    """What the run of a model measured last."""
    run, logged = _line(folder / _MLMODEL, "run_id"), folder.absolute().parent
    places = [parent / run for parent in logged.parents[:3]] if run else []
    for place in (*places, *logged.parents[:2], logged):
        if (place / "metrics").is_dir():
            return measured(dict(_last_values(place / "metrics")))
    return {}


def _last_values(folder: Path) -> Iterator[tuple[str, float]]:
    """Of each metric of a run the value of its last step: a file of lines `time value step`."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.stat().st_size <= _MOST:
            lines = [line.split() for line in path.read_text(errors="replace").splitlines()]
            try:
                steps = [(int(words[2]), int(words[0]), float(words[1])) for words in lines]
                yield path.relative_to(folder).as_posix(), max(steps)[2]
            except (IndexError, ValueError):
                continue
