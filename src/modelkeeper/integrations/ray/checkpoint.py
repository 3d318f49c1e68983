"""What does a checkpoint need, so that others can start from it whatever their widths, and a zoo can take it?

    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(folder, model)                       beside what you save yourself
        report(metrics, model, checkpoint=Checkpoint.from_directory(folder))

    load_checkpoint(model, tune.get_checkpoint())            plain loading, or a transfer to other widths

One file holds the weights and the graph, so nobody has to build the model that it was; a second one says how
good the model was. PopulationBasedTraining lets trials go on from the checkpoint of a better one, and may
change widths meanwhile: `load_state_dict` fails there.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import ray.train
from ray.tune import Checkpoint

from modelkeeper.errors import InvalidWeights
from modelkeeper.frontends import describe, frontend_for
from modelkeeper.graph import Graph, from_json, to_json
from modelkeeper.run import Described
from modelkeeper.warmstart.transfer import transfer
from modelkeeper.weights import Header, open_file, stream
from modelkeeper.zoo.records import Registration

if TYPE_CHECKING:
    from modelkeeper.client import ModelKeeperClient
    from modelkeeper.warmstart.transfer import Report
    from modelkeeper.zoo.records import Record

WEIGHTS, SAID = "modelkeeper.safetensors", "modelkeeper.json"
Where: TypeAlias = Checkpoint | str | os.PathLike[str]


def save_checkpoint(folder: str | os.PathLike[str], model: Any, *, example_inputs: Any = None) -> None:
    """Write a model into the folder of a checkpoint, beside whatever else is there.

    Args:
        folder: Of a checkpoint that is being made.
        model: A model of a known framework. It is not changed.
        example_inputs: What the model runs on, if that cannot be found from the model itself.

    Raises:
        CannotDescribe: It did not run on the inputs there were.
    """
    frontend = frontend_for(model)
    graph, tensors = describe(frontend, model, example_inputs), list(frontend.read(model))
    layout = ((name, str(array.dtype), tuple(array.shape)) for name, array in tensors)
    header = Header.of(layout, {"graph": to_json(graph).decode()})
    with (Path(folder) / WEIGHTS).open("wb") as file:
        for chunk in stream(header, tensors):
            file.write(chunk)


def load_checkpoint(
    model: Any, checkpoint: Where | None, *, example_inputs: Any = None, **more: Any
) -> "Report | None":
    """Load the weights of a checkpoint into a model, in place, whatever the widths of both.

    Args:
        model: Its architecture is not changed.
        checkpoint: That `save_checkpoint` had a part in; None (what `tune.get_checkpoint` gives to a trial
            that begins) does nothing.
        example_inputs: What the model runs on, if that cannot be found from the model itself.
        more: Further arguments of `modelkeeper.transfer`.

    Returns:
        What was done: `report.exact` says whether the model now computes what the other did.

    Raises:
        InvalidWeights: The checkpoint has no weights that `save_checkpoint` wrote, or they are damaged.
    """
    if checkpoint is None:
        return None
    with folder_of(checkpoint) as folder:
        return transfer(graph_in(folder), model, example_inputs, weights=folder / WEIGHTS, **more)


@contextlib.contextmanager
def folder_of(checkpoint: Where) -> Iterator[Path]:
    """The files of a checkpoint, on this machine."""
    if isinstance(checkpoint, Checkpoint | ray.train.Checkpoint):
        with checkpoint.as_directory() as folder:
            yield Path(folder)
    else:
        yield Path(checkpoint)


def graph_in(folder: Path) -> Graph:
    """The graph of the model in a checkpoint.

    Raises:
        InvalidWeights: There is none.
    """
    if not (folder / WEIGHTS).is_file():
        raise InvalidWeights(str(folder), f"there is no {WEIGHTS} in it: write it with save_checkpoint")
    metadata = open_file(folder / WEIGHTS).header.metadata
    if "graph" not in metadata:
        raise InvalidWeights(str(folder / WEIGHTS), "it does not say of which model it is")
    return from_json(metadata["graph"])


def say(folder: str | os.PathLike[str], registration: Registration) -> None:
    """Write down how good the model in a checkpoint is, if there is one."""
    if (Path(folder) / WEIGHTS).is_file():
        (Path(folder) / SAID).write_bytes(msgspec.json.encode(registration))


def said_in(folder: Path) -> Registration | None:
    """How good the model in a checkpoint is; None if nobody said so."""
    if not (folder / WEIGHTS).is_file() or not (folder / SAID).is_file():
        return None
    return msgspec.json.decode((folder / SAID).read_bytes(), type=Registration)


def register(client: "ModelKeeperClient", folder: Path, registration: Registration) -> "Record":
    """Take the model of a checkpoint into the zoo."""
    return client.keep(Described(graph_in(folder), b""), open_file(folder / WEIGHTS), registration)
