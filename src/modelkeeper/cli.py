"""The command line: `modelkeeper COMMAND`, also `python -m modelkeeper COMMAND`.

A command imports what it needs when it runs, so that `--help` and `--version` answer at once and a
machine without a framework can still ask. What goes wrong on purpose (ModelKeeperError) is one line on
standard error and exit code 1; a wrong call is exit code 2.
"""

import ast
import contextlib
import difflib
import importlib
import json
import os
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from modelkeeper.errors import CannotLoadFactory, ModelKeeperError, UnknownFramework

if TYPE_CHECKING:
    from rich.console import Console

    from modelkeeper.graph import Graph


class Shape(NamedTuple):
    """An input to make up: its sizes and its dtype."""

    sizes: tuple[int, ...]
    dtype: str


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


class _Group(click.Group):
    """A group whose commands may raise ModelKeeperError: click then prints it and exits with 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ModelKeeperError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="modelkeeper", help="Print the version and leave.")
def main() -> None:
    """Warm starts for neural-network training."""


@main.command()
@click.argument("factory")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the graph as JSON, the form in which it travels."
)
@click.option(
    "--input",
    "shapes",
    callback=_shapes,
    multiple=True,
    metavar="SHAPE",
    help="The shape of an example input, e.g. 1,3,32,32 or int64:1,16; once for each input. "
    "Default: found from the model.",
)
def describe(factory: str, as_json: bool, shapes: tuple[Shape, ...]) -> None:
    """Print the graph of the model that FACTORY makes.

    FACTORY is module:name or module:name(arguments). The module is looked for in the current folder
    too; the name is a model, a class, or a function that returns a model; the arguments are Python
    literals.

    \b
      modelkeeper describe my_models:resnet20
      modelkeeper describe "my_models:make(width=64)" --input 1,3,32,32
    """
    from modelkeeper.graph import to_json

    with contextlib.redirect_stdout(sys.stderr):  # what the user's code prints must not mix with ours
        graph = _described(factory, shapes)
    if as_json:
        click.echo(to_json(graph))
    else:
        from modelkeeper.render import report

        _console().print(report(graph))


@main.command()
@click.argument("parent")
@click.argument("child")
@click.option("--json", "as_json", is_flag=True, help="Print the alignment as JSON.")
@click.option(
    "--input",
    "shapes",
    callback=_shapes,
    multiple=True,
    metavar="SHAPE",
    help="The shape of an example input of both models; see `modelkeeper describe`.",
)
def diff(parent: str, child: str, as_json: bool, shapes: tuple[Shape, ...]) -> None:
    """Align two models, layer against layer: what could PARENT lend to CHILD?

    PARENT and CHILD are factories, as for `modelkeeper describe`, or files that it wrote with --json.

    \b
      modelkeeper diff my_models:resnet20 my_models:resnet56
      modelkeeper diff trained.json "my_models:make(width=64)" --json
    """
    from modelkeeper.comparison import side_by_side, to_dict
    from modelkeeper.matching import align

    with contextlib.redirect_stdout(sys.stderr):
        first, second = _graph(parent, shapes), _graph(child, shapes)
    found = align(first, second)
    if as_json:
        click.echo(json.dumps(to_dict(first, second, found), ensure_ascii=False))
    else:
        _console().print(side_by_side((parent, first), (child, second), found))


def _graph(source: str, shapes: tuple[Shape, ...]) -> "Graph":
    """The graph in a file, or of the model that a factory makes."""
    from modelkeeper.graph import from_json

    if os.path.isfile(source):
        with open(source, "rb") as file:
            return from_json(file.read())
    return _described(source, shapes)


def _described(factory: str, shapes: tuple[Shape, ...]) -> "Graph":
    from modelkeeper.frontends import frontend_for

    model = load_model(factory)
    frontend = frontend_for(model)
    inputs = tuple(frontend.example(shape.sizes, shape.dtype) for shape in shapes)
    graph: Graph = frontend.describe(model, example_inputs=inputs or None)
    return graph


def load_model(factory: str) -> object:
    """The model that `module:name` or `module:name(literals)` names.

    Only what the user's own module does is run: the arguments are read as literals, never evaluated.
    """
    from modelkeeper.frontends import frontend_for

    module_name, path, call = _parse(factory)
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` does: the current folder
    with _blame(factory, f"importing {module_name} raised"):
        try:
            found: Any = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
                raise  # the module is there; something that it imports is not
            raise CannotLoadFactory(
                factory, f"no module {error.name!r} is installed or in {os.getcwd()}"
            ) from error
    for name in path:
        if not hasattr(found, name):
            near = difflib.get_close_matches(name, dir(found), n=1)
            hint = f" (but {near[0]!r})" if near else ""
            raise CannotLoadFactory(factory, f"{getattr(found, '__name__', found)} has no {name!r}{hint}")
        found = getattr(found, name)
    if call is None:
        with contextlib.suppress(UnknownFramework):
            frontend_for(found)
            return found  # a model already
        if not callable(found):
            return found  # no model, as the caller will find
        call = (), {}
    with _blame(factory, "calling it raised"):
        return found(*call[0], **call[1])


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
            call = tuple(ast.literal_eval(each) for each in node.args), keywords
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


def _console() -> "Console":
    """A console as wide as its terminal; in a pipe, wide enough for a table."""
    from rich.console import Console

    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(width=160 if piped else None)
