"""Which files hold weights alone, and which model do they belong to?

Files of torch.save (a state_dict, a checkpoint with one in it, one of Lightning), safetensors, and both in
parts that an index names. The model is what a factory makes of the arguments that the file, or a file beside
it, names; or what graph.json beside the file says.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from modelkeeper.errors import InvalidModelFile
from modelkeeper.graph import Graph, from_json
from modelkeeper.importing.beside import arguments, measured, trained
from modelkeeper.importing.contents import SAFETENSORS, TORCH, TORCH_LEGACY, content_of
from modelkeeper.importing.factories import Factory
from modelkeeper.importing.fitting import fit
from modelkeeper.importing.kinds.kept import program_beside, record_beside
from modelkeeper.importing.kinds.shards import INDICES, shards, shards_problem
from modelkeeper.importing.things import WEIGHTS, Claim, Listing, Shape, Source, Terms, Thing, name_of
from modelkeeper.weights import Array, open_file
from modelkeeper.zoo.files.blobs import GRAPH

_WHICH = "Say with --model which model it is of: module:factory, or a graph that `modelkeeper describe` wrote"


class Weights:
    """Files of weights by name."""

    name = WEIGHTS

    def claim(self, folder: Listing) -> Claim | None:
        """What indices in a folder name."""
        things, files = [], set()
        for name, index in folder.files.items():
            if name.endswith(INDICES):
                parts, missing = shards(index)
                problem = shards_problem(parts, missing)
                advice = "Fetch the rest of them" if problem else ""
                things.append(Thing(self.name, index, parts or (index,), name_of(index), problem, advice))
                files |= {name, *(part.name for part in parts)}
        return Claim(tuple(things), frozenset(files)) if things else None

    def holds(self, content: str) -> bool:
        """Files of torch.save and safetensors."""
        return content in (SAFETENSORS, TORCH, TORCH_LEGACY)

    def open(self, thing: Thing, terms: Terms) -> Source:
        """The weights, in the model that they belong to."""
        read = _Contents.of(thing, terms.trust)
        meta = record_beside(thing.source) or read.meta or trained(thing.source.parent)
        if read.model is not None:
            return Source(model=read.model, meta=meta)
        graph, program = terms.graph, b""
        if graph is None and terms.factory is None:
            beside = thing.source.with_name(GRAPH)
            if not beside.is_file():
                problem = f"it holds weights alone, and there is no {GRAPH} beside it"
                raise InvalidModelFile(str(thing.path), problem, _WHICH)
            graph, program = from_json(beside.read_bytes()), program_beside(thing.source)
        if graph is not None:
            tensors = _of_graph(graph, read.tensors, str(thing.path))
            return Source(graph=graph, tensors=tensors.items(), meta=meta, program=program)
        assert terms.factory is not None
        model, beside_names = _filled(terms.factory, read, thing, terms.shapes)
        notes = (f"{len(beside_names)} of its tensors are of no part of the model",) if beside_names else ()
        return Source(model=model, meta=meta, notes=notes)


class _Contents:
    """What the files of a thing hold."""

    def __init__(self) -> None:
        self.tensors: dict[str, Array] = {}
        self.arguments: Mapping[str, Any] = {}
        self.meta: dict[str, Any] = {}
        self.model: Any = None  # the model itself, of a file that is trusted

    @classmethod
    def of(cls, thing: Thing, trust: bool) -> "_Contents":
        """Read all files of a thing."""
        read = cls()
        for file in thing.files:
            if content_of(file) == SAFETENSORS:
                read.tensors.update(open_file(file))
            else:
                read._checkpoint(file, trust)
        read.arguments = read.arguments or arguments(thing.path)
        return read

    def _checkpoint(self, file: Path, trust: bool) -> None:
        try:
            from modelkeeper.frontends.torch.files import read_checkpoint
        except ModuleNotFoundError as error:
            problem = f"PyTorch wrote it, and the package {error.name} is not installed"
            raise InvalidModelFile(
                str(file), problem, 'Install it: pip install "modelkeeper[torch]"'
            ) from error
        checkpoint = read_checkpoint(file, trust=trust)
        self.tensors.update(checkpoint.tensors)
        self.arguments = {**self.arguments, **checkpoint.arguments}
        self.meta |= measured(checkpoint.metrics, checkpoint.metric)
        self.model = checkpoint.module if self.model is None else self.model


def _of_graph(graph: Graph, tensors: Mapping[str, Array], file: str) -> dict[str, Array]:
    """The tensors by the names of a graph."""
    shapes = {name: tensor.shape for name, tensor in graph.tensors.items() if tensor.stored}
    return fit(tensors, {name: name for name in shapes}, file, shapes).tensors


def _filled(
    factory: Factory, read: _Contents, thing: Thing, inputs: tuple[Shape, ...]
) -> tuple[Any, tuple[str, ...]]:
    """The model that a factory makes, with the weights in it; and what of the file is not of it."""
    from modelkeeper.frontends import frontend_for

    model: Any = factory.make(read.arguments)
    frontend = frontend_for(model)
    names: dict[str, str] = {}
    if frontend.name == "torch":
        from modelkeeper.frontends.torch.files import aliases

        names = aliases(model)
    else:  # others know their tensors when they were described
        frontend.trace(model, tuple(frontend.example(*shape) for shape in inputs) or None)
    shapes = {name: tuple(array.shape) for name, array in frontend.read(model)}
    names = names or {name: name for name in shapes}
    fitted = fit(read.tensors, names, str(thing.path), shapes)
    return frontend.load(model, fitted.tensors), fitted.beside
