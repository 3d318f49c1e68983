"""Which folders hold a model that a zoo kept? Those with a graph, weights and a record of it."""

from pathlib import Path
from typing import Any

from modelkeeper.graph import from_json
from modelkeeper.importing.beside import read_json
from modelkeeper.importing.things import Claim, Listing, Source, Terms, Thing
from modelkeeper.weights import open_file
from modelkeeper.zoo.files.blobs import CONFIG, GRAPH, PROGRAM, WEIGHTS

_FORMAT = "modelkeeper.model"


class Kept:
    """A folder of a zoo: model.safetensors, graph.json, config.json and, mostly, program.json."""

    name = "zoo"

    def claim(self, folder: Listing) -> Claim | None:
        """The folder itself."""
        if not {WEIGHTS, GRAPH} <= folder.files.keys():
            return None
        files = tuple(folder.files[name] for name in (WEIGHTS, GRAPH))
        name = record_beside(files[0]).get("name") or folder.path.absolute().name
        return Claim((Thing(self.name, folder.path, files, str(name)),), whole=True)

    def holds(self, content: str) -> bool:
        """No single file."""
        return False

    def open(self, thing: Thing, terms: Terms) -> Source:
        """The graph, the weights, the program and the record, as they were written."""
        weights, graph = thing.files
        return Source(
            graph=from_json(graph.read_bytes()),
            tensors=open_file(weights).items(),
            meta=record_beside(weights),
            program=program_beside(weights),
        )


def record_beside(file: Path) -> dict[str, Any]:
    """What the config.json beside a file of weights says of it, if a zoo wrote it."""
    config = read_json(file.parent / CONFIG) if file.name == WEIGHTS else None
    if not isinstance(config, dict) or config.get("format") != _FORMAT:
        return {}
    meta = {key: config.get(key) for key in ("name", "data", "task", "tags", "metrics")}
    if config.get("value") is not None:
        meta["metric"] = {
            "name": config.get("metric"),
            "value": config["value"],
            "lower_is_better": config.get("lower_is_better"),
        }
    return {key: value for key, value in meta.items() if value}


def program_beside(file: Path) -> bytes:
    """The program that lies beside a file of weights; nothing if there is none."""
    path = file.parent / PROGRAM
    return path.read_bytes() if path.is_file() else b""
