"""Which folders hold a model of transformers? Those with a config.json that says so, also in a hub's cache.

    ~/.cache/huggingface/hub/models--org--name/snapshots/REVISION/config.json, model.safetensors ...

Of a cache the revision counts that `main` refers to, or else the newest.
"""

from collections.abc import Mapping
from pathlib import Path

from modelkeeper.errors import InvalidModelFile
from modelkeeper.importing.beside import read_json, trained
from modelkeeper.importing.kinds.shards import shards, shards_problem
from modelkeeper.importing.things import Claim, Listing, Source, Terms, Thing

_CONFIG = "config.json"
_INDEX = ".index.json"
# As transformers prefer them.
_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
_CACHED = ("models--", "datasets--", "spaces--")  # how folders of a hub's cache are called


class HuggingFace:
    """Folders that `save_pretrained`, the Trainer and the hub's cache write."""

    name = "Hugging Face"

    def claim(self, folder: Listing) -> Claim | None:
        """A snapshot, or the one that counts of a model in a hub's cache."""
        name = folder.path.absolute().name
        if name.startswith(_CACHED) and "snapshots" in folder.folders:
            snapshot = _current(folder.path) if name.startswith(_CACHED[0]) else None
            if snapshot is None:
                return Claim(whole=True)
            title = name.removeprefix(_CACHED[0]).replace("--", "/")
            return self._snapshot(Listing.of(snapshot, title)) or Claim(whole=True)
        return self._snapshot(folder)

    def _snapshot(self, folder: Listing) -> Claim | None:
        from_hub = bool(folder.named)
        if "adapter_config.json" in folder.files:
            return None
        if not _is_model(folder.files.get(_CONFIG)):
            return None
        weights = next((folder.files[name] for name in _WEIGHTS if name in folder.files), None)
        if weights is None:
            return Claim(files=frozenset(folder.files), whole=from_hub)  # a tokenizer, or another framework's
        files: tuple[Path, ...] = (weights,)
        problem = ""
        if weights.name.endswith(_INDEX):
            files, missing = shards(weights)
            problem = shards_problem(files, missing)
        name = folder.named or _name(folder.path.absolute())
        thing = Thing(
            self.name,
            folder.path,
            (folder.files[_CONFIG], *files),
            name,
            problem=problem,
            advice="Fetch the rest of them" if problem else "",
        )
        return Claim((thing,), frozenset(folder.files), whole=from_hub)

    def holds(self, content: str) -> bool:
        """No single file."""
        return False

    def open(self, thing: Thing, terms: Terms) -> Source:
        """The model, built from its config and filled by transformers."""
        try:
            from modelkeeper.integrations.huggingface.snapshots import load_snapshot
        except ModuleNotFoundError as error:
            problem = f"the package {error.name} is not installed"
            raise InvalidModelFile(
                str(thing.path), problem, "Install it: pip install transformers"
            ) from error
        folder = thing.source.parent
        model, notes = load_snapshot(folder)
        return Source(model=model, meta=trained(folder), notes=notes)


def _is_model(config: Path | None) -> bool:
    """Does a config.json name a model of transformers?"""
    said = read_json(config) if config is not None else None
    return isinstance(said, Mapping) and ("model_type" in said or "architectures" in said)


def _name(folder: Path) -> str:
    """What a model in a folder is called; a checkpoint of the Trainer by its run."""
    if folder.name.startswith("checkpoint-"):
        return f"{folder.parent.name}/{folder.name}"
    return folder.name or "model"


def _current(cached: Path) -> Path | None:
    """The snapshot of a cached model that counts; None if there is none."""
    snapshots = [path for path in (cached / "snapshots").iterdir() if path.is_dir()]
    try:
        main = (cached / "refs" / "main").read_text().strip()
    except OSError:
        main = ""
    named = [path for path in snapshots if path.name == main]
    newest = sorted(snapshots, key=lambda path: (path.stat().st_mtime, path.name))
    return next(iter(named or newest[-1:]), None)
