"""Which model does a user mean on the command line?

    open_model("my_models:make(width=64)", given)    the model that the user's own code makes, described
    open_model("trained.onnx", given)                the model in a file or a folder, of whatever kind
    graph_of("trained.json", given)                  its graph, or the graph in a file
    graph_of_any("resnet20", given, zoo)             the same, or that of a model of a zoo

What is no `module:name` is a path; or, where models of a zoo count, one of them. Only what the user's own
module does is run, unless --trust says more.
"""

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from modelkeeper.cli.options import opened
from modelkeeper.errors import InvalidModelFile

if TYPE_CHECKING:
    from modelkeeper.graph import Graph
    from modelkeeper.importing.things import Opened, Shape, Source, Terms
    from modelkeeper.weights import Array

ONNX = ".onnx"  # how the names of files end that can be written again with other weights
OTHERS = (".pt", ".pth", ".bin", ".ckpt", ".pt2", ".keras", ".h5")  # and of those that cannot

trust_option = click.option(
    "--trust",
    is_flag=True,
    help="Run code that lies in files: pickled models, .pt2 programs, lambdas of Keras. Only for files that "
    "you know where they come from.",
)


def shapes_option(text: str) -> Callable[[Any], Any]:
    """The option --input, with this help."""
    return click.option("--input", "shapes", callback=_shapes, multiple=True, metavar="SHAPE", help=text)


def _shapes(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> "tuple[Shape, ...]":
    """Read `1,3,32,32`, or with a dtype `int64:1,16`."""
    if not values:
        return ()
    from modelkeeper.graph.rules import DTYPES
    from modelkeeper.importing.things import Shape

    known = sorted(DTYPES - {"opaque"})
    shapes = []
    for value in values:
        dtype, colon, sizes = value.rpartition(":")
        if not re.fullmatch(r"[1-9][0-9]{0,14}(,[1-9][0-9]{0,14})*", sizes):
            advice = "give sizes separated by commas, e.g. 1,3,32,32 or int64:1,16"
            raise click.BadParameter(f"{value!r} is no shape: {advice}.", ctx, param)
        if colon and dtype not in known:
            raise click.BadParameter(f"unknown dtype {dtype!r}: one of {', '.join(known)}.", ctx, param)
        shapes.append(Shape(tuple(int(size) for size in sizes.split(",")), dtype or "float32"))
    return tuple(shapes)


class Given(NamedTuple):
    """What a user says beside the model, on how it is to be opened."""

    shapes: "tuple[Shape, ...]" = ()
    trust: bool = False
    architecture: str | None = None  # of weights: a factory, a file of a graph, or an ONNX file

    def terms(self) -> "Terms":
        """The same, understood."""
        from modelkeeper.importing.factories import Factory
        from modelkeeper.importing.things import Terms

        if self.architecture is None:
            return Terms(shapes=self.shapes, trust=self.trust)
        if is_path(self.architecture):
            graph = graph_of(self.architecture, Given(self.shapes, self.trust))
            return Terms(graph=graph, shapes=self.shapes, trust=self.trust)
        return Terms(Factory(self.architecture), shapes=self.shapes, trust=self.trust)


def is_path(source: str) -> bool:
    """Does it name a file or a folder, and no factory?"""
    if os.path.exists(source):
        return True
    from modelkeeper.importing.contents import SUFFIXES

    return ":" not in source and (os.sep in source or Path(source).suffix.lower() in {*SUFFIXES, ".json"})


def is_graph(source: str) -> bool:
    """Is it a file of a graph, and no model?"""
    if not os.path.isfile(source):
        return False
    from modelkeeper.importing.contents import JSON, content_of

    return content_of(Path(source)) == JSON and not source.endswith(".index.json")


def read_graph(path: str) -> "Graph":
    """The graph in a file."""
    from modelkeeper.graph import from_json

    with open(path, "rb") as file:
        return from_json(file.read())


def graph_of(source: str, given: Given) -> "Graph":
    """The graph in a file, or of the model that a file holds or a factory makes."""
    return read_graph(source) if is_graph(source) else open_model(source, given, program=False).graph


def graph_of_any(source: str, given: Given, zoo: str | None) -> "Graph":
    """The same; what is no file there is, and no factory, is a model of a zoo, by its name or id."""
    if not _may_be_of_zoo(source):
        return graph_of(source, given)
    with opened(zoo) as coordinator:
        return coordinator.graph(coordinator.show(source))


def _may_be_of_zoo(source: str) -> bool:
    """Is it neither a factory, nor a file or folder that is there or is meant by how its name ends?"""
    if ":" in source or os.path.exists(source) or source.startswith((os.sep, ".", "~")):
        return False
    if Path(f"{source}.py").is_file():  # a module, of which the name behind the colon is missing
        return False
    return not is_path(Path(source).name)  # the whole of it may have an owner: ada/resnet20


def users_code() -> contextlib.AbstractContextManager[Any]:
    """What the user's code prints must not mix with what a command prints."""
    return contextlib.redirect_stdout(sys.stderr)


def open_model(source: str, given: Given, *, program: bool = True) -> "Opened":
    """The model that a factory makes or that a path holds, described."""
    from modelkeeper.importing.opening import described

    with users_code():
        return described(_read(source, given), given.terms(), program=program)


def _read(source: str, given: Given) -> "Source":
    from modelkeeper.importing.factories import Factory
    from modelkeeper.importing.opening import only_thing, read_thing
    from modelkeeper.importing.things import WEIGHTS, Source

    if is_path(source):
        thing = only_thing(Path(source).expanduser())
        if given.architecture is not None and thing.kind != WEIGHTS and not thing.problem:
            raise click.UsageError(f"--model goes with a file of weights; {source} is a model already.")
        return read_thing(thing, given.terms())
    if given.architecture is not None:
        raise click.UsageError("--model goes with a file of weights; a factory is the model already.")
    return Source(model=Factory(source).make())


def save_model_file(model: Any, path: str, weights: "Iterable[tuple[str, Array]]") -> None:
    """Write a model that came from an ONNX file to another one, with other weights.

    Raises:
        InvalidModelFile: It came from no such file.
    """
    try:
        from modelkeeper.frontends.onnx import OnnxModel, save
    except ModuleNotFoundError as error:
        problem = f"the package {error.name} is not installed"
        raise InvalidModelFile(path, problem, 'Install it: pip install "modelkeeper[onnx]"') from error
    if not isinstance(model, OnnxModel):
        raise InvalidModelFile(path, "the model came from no ONNX file", "Name a .safetensors file")
    save(model, path, weights)
