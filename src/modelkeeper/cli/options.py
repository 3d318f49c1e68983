"""What do all commands share? Which zoo is meant, and how answers are printed.

@zoo_option @json_option
def command(zoo, as_json): ...
with opened(zoo) as coordinator: ...
echo_json(data), say(text) or console().print(table)
with progress("copying") as bar: bar(done, total)
with waiting("counting"): ...
"""

import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import click

from modelkeeper.text import printable

PATIENCE = 0.5  # seconds before something is said to whoever waits

if TYPE_CHECKING:
    from rich.console import Console

    from modelkeeper.coordinator import Coordinator
    from modelkeeper.drawings import Picture
    from modelkeeper.graph import Graph

zoo_option = click.option(
    "--zoo",
    envvar="MODELKEEPER_URI",
    metavar="URI",
    help="The folder of the zoo, or the address of a coordinator (host:port, http://...); its token comes "
    "from MODELKEEPER_TOKEN. Default: the variable MODELKEEPER_URI, or ~/.modelkeeper.",
)


def json_option(text: str = "Print JSON instead of a table.") -> Callable[[Any], Any]:
    """The option --json, with this help."""
    return click.option("--json", "as_json", is_flag=True, help=text)


def svg_option(text: str) -> Callable[[Any], Any]:
    """The option --svg, with this help."""
    path = click.Path(dir_okay=False, writable=True)
    return click.option("--svg", metavar="FILE", type=path, help=f"{text} As an SVG file.")


def save_drawing(drawing: "Picture", path: str) -> None:
    """Save a picture, and say where it is."""
    try:
        saved = drawing.save(path)
    except OSError as problem:
        raise click.ClickException(f"{path} cannot be written: {problem.strerror}.") from problem
    say(f"Saved {saved}")


def whose_options(which: str) -> Callable[[Any], Any]:
    """The options --owner, --project, --signed and --licence, which say `which` models count."""

    def add(command: Any) -> Any:
        whose = (
            ("--owner", "owners", "of this user, by name or id; of one of them, if several."),
            ("--project", "projects", "of this project; of one of them, if several."),
            ("--licence", "licences", "with this licence, e.g. Apache-2.0; with one of them, if several."),
        )
        for option, name, text in whose:
            command = click.option(option, name, multiple=True, help=f"{which} {text}")(command)
        return click.option("--signed", is_flag=True, help=f"{which} that a trusted key has signed.")(command)

    return add


def opened(uri: str | None, *, make: bool = False) -> "AbstractContextManager[Coordinator]":
    """The coordinator of a zoo, closed at the end of a `with`.

    Args:
        uri: As `ModelKeeperClient` takes it.
        make: Make the zoo if it is not there. Otherwise that is an error: a typo is no empty zoo.
    """
    from modelkeeper import coordinator

    return contextlib.closing(coordinator.open(uri, make=make))


def looked_into(uri: str | None) -> str | None:
    """Where a look goes that shall change nothing: the zoo that is meant; if there is none, one in memory."""
    from modelkeeper.coordinator import target
    from modelkeeper.coordinator.opening import is_zoo

    meant = target(uri)
    elsewhere = meant.url or meant.settings.in_memory or meant.settings.catalog
    return uri if elsewhere or is_zoo(meant.settings.folder) else ":memory:"


def say(text: str, *, err: bool = False) -> None:
    """Print a text; whatever names are in it, nothing steers the terminal."""
    click.echo(printable(text), err=err)


def echo_json(data: Any) -> None:
    """Print JSON, in ASCII: text that others registered may hold what steers a terminal."""
    click.echo(json.dumps(data))


def echo_graph(graph: "Graph") -> None:
    """Print a graph as JSON, likewise."""
    from modelkeeper.graph import to_json

    text = to_json(graph).decode()
    click.echo(text if text.isascii() and text.isprintable() else json.dumps(json.loads(text)))


def console() -> "Console":
    """A console as wide as its terminal; in a pipe, wide enough for a table."""
    from modelkeeper.display.consoles import clean_console

    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return clean_console(width=160 if piped else None)


@contextlib.contextmanager
def progress(
    label: str, *, in_bytes: bool = False, silent: bool = False
) -> "Iterator[Callable[[float, float], None]]":
    """A bar on standard error. Yields what is told: how much of how much (0: not known) is done.

    There is none if standard error is no terminal, or if it shall be `silent`: where JSON is asked for.
    """
    if silent or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.progress import TimeRemainingColumn as Remaining

    amount = DownloadColumn() if in_bytes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeElapsedColumn(), Remaining())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)


@contextlib.contextmanager
def waiting(label: str, *, silent: bool = False) -> Iterator[None]:
    """Say on standard error what is waited for, if it takes longer than a moment; where, as for `progress`.

    Nothing may be printed meanwhile.
    """
    if silent or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    status = Console(stderr=True).status(f"{label} ...")
    timer = threading.Timer(PATIENCE, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # it may be starting just now
        status.stop()
