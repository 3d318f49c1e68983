"""Which model does a user mean on the command line?

    load_model("my_models:make(width=64)")    the model that the user's own code makes
    load_model("trained.onnx")                the model in an ONNX file
    graph_of("trained.json", shapes)          its graph, or the graph in a file

Only what the user's own module does is run: arguments are read as literals, never evaluated.
"""

import ast
import contextlib
import difflib
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from modelkeeper.errors import CannotLoadFactory, InvalidModelFile, ModelKeeperError, UnknownFramework

if TYPE_CHECKING:
    from modelkeeper.graph import Graph
    from modelkeeper.weights import Array


ONNX = ".onnx"  # how the names of files end that hold a model with its weights


class Shape(NamedTuple):
    """An input to make up: its sizes and its dtype."""

    sizes: tuple[int, ...]
    dtype: str


def shapes_option(text: str) -> Callable[[Any], Any]:
    """The option --input, with this help."""
    return click.option("--input", "shapes", callback=_shapes, multiple=True, metavar="SHAPE", help=text)


def _shapes(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[Shape, ...]:
    """Read `1,3,32,32`, or with a dtype `int64:1,16`."""
    from modelkeeper.graph.rules import DTYPES

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


def graph_of(source: str, shapes: tuple[Shape, ...]) -> "Graph":
    """The graph in a file, or of the model that a factory makes."""
    return read_graph(source) if is_graph(source) else described(load_model(source), shapes)


def is_graph(source: str) -> bool:
    """Is it a file of a graph, and no model?"""
    return os.path.isfile(source) and not is_model_file(source)


def is_model_file(source: str) -> bool:
    """Does it name a file that holds a whole model?"""
    return source.lower().endswith(ONNX) and ":" not in os.path.basename(source)


def read_graph(path: str) -> "Graph":
    """The graph in a file."""
    from modelkeeper.graph import from_json

    with open(path, "rb") as file:
        return from_json(file.read())


def described(model: object, shapes: tuple[Shape, ...]) -> "Graph":
    """The graph of a model, run on inputs of these shapes if there are any."""
    from modelkeeper.frontends import describe, frontend_for

    frontend = frontend_for(model)
    inputs = tuple(frontend.example(shape.sizes, shape.dtype) for shape in shapes)
    return describe(frontend, model, inputs or None)


def users_code() -> contextlib.AbstractContextManager[Any]:
    """What the user's code prints must not mix with what a command prints."""
    return contextlib.redirect_stdout(sys.stderr)


def load_model(factory: str) -> object:
    """The model that `module:name` or `module:name(literals)` names, or that is in an ONNX file."""
    from modelkeeper.frontends import frontend_for

    if is_model_file(factory):
        return open_model_file(factory)
    module_name, path, call = _parse(factory)
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` does: the current folder
    with _blame(factory, f"importing {module_name} raised"):
        try:
            named: Any = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
                raise  # the module is there; something that it imports is not
            raise CannotLoadFactory(
                factory, f"no module {error.name!r} is installed or in {os.getcwd()}"
            ) from error
    for name in path:
        if not hasattr(named, name):
            near = difflib.get_close_matches(name, dir(named), n=1)
            hint = f" (but {near[0]!r})" if near else ""
            raise CannotLoadFactory(factory, f"{getattr(named, '__name__', named)} has no {name!r}{hint}")
        named = getattr(named, name)
    if call is None:
        with contextlib.suppress(UnknownFramework):
            frontend_for(named)
            return named  # a model already
        if not callable(named):
            return named  # no model, as the caller will find
        call = (), {}
    with _blame(factory, "calling it raised"):
        return named(*call[0], **call[1])


def open_model_file(path: str) -> Any:
    """The model in an ONNX file: `OnnxModel` of the ONNX front end.

    Raises:
        InvalidModelFile: It holds no model, or there is no package to read it with.
    """
    try:
        from modelkeeper.frontends.onnx import OnnxModel
    except ModuleNotFoundError as error:
        problem = f"the package {error.name} is not installed"
        raise InvalidModelFile(path, problem, "Install it: pip install modelkeeper[onnx]") from error
    return OnnxModel(path)


def save_model_file(model: Any, path: str, weights: "Iterable[tuple[str, Array]]") -> None:
    """Write a model that came from a file to another one, with other weights."""
    from modelkeeper.frontends.onnx import save

    save(model, path, weights)


Call = tuple[tuple[object, ...], dict[str, object]]


def _parse(factory: str) -> tuple[str, list[str], Call | None]:
    """Module, attribute path and arguments (None: not called) of `module:a.b(1, x=2)`."""
    module, colon, text = factory.partition(":")
    if not colon or not all(part.isidentifier() for part in module.split(".")):
        raise CannotLoadFactory(factory, "there is no module before a colon")
    try:
        node = ast.parse(text.strip(), mode="eval").body
        call: Call | None = None
        if isinstance(node, ast.Call):
            keywords = {
                keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords if keyword.arg
            }
            if len(keywords) < len(node.keywords):
                raise ValueError("**")
            call = tuple(ast.literal_eval(argument) for argument in node.args), keywords
            node = node.func
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError) as error:
        raise CannotLoadFactory(factory, "after the colon there is no name with literal arguments") from error
    path: list[str] = []
    while isinstance(node, ast.Attribute):
        path.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        raise CannotLoadFactory(factory, "after the colon there is no name with literal arguments")
    return module, [node.id, *path], call


@contextlib.contextmanager
def _blame(factory: str, what: str) -> Iterator[None]:
    """Turn whatever the user's code raises into CannotLoadFactory."""
    try:
        yield
    except ModelKeeperError:
        raise
    except Exception as error:  # the user's code may raise anything
        raise CannotLoadFactory(factory, f"{what} {type(error).__name__}: {error}") from error
