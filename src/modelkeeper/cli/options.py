"""What do all commands share? Which zoo is meant, and how answers are printed.

@zoo_option @json_option
def command(zoo, as_json): ...
with opened(zoo) as coordinator: ...
echo_json(data) or console().print(table)
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from modelkeeper.errors import ZooUnusable

if TYPE_CHECKING:
    from rich.console import Console

    from modelkeeper.coordinator.local import Coordinator
    from modelkeeper.coordinator.remote import RemoteCoordinator

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


@contextlib.contextmanager
def opened(uri: str | None, *, make: bool = False) -> "Iterator[Coordinator | RemoteCoordinator]":
    """The coordinator of a zoo.

    Args:
        uri: As `ModelKeeperClient` takes it.
        make: Make the zoo if it is not there. Otherwise that is an error: a typo is no empty zoo.
    """
    from modelkeeper.coordinator.local import Coordinator
    from modelkeeper.settings import MEMORY, Settings, is_address

    if uri and is_address(uri):
        with _called(uri) as remote:
            yield remote
        return
    settings = Settings.read(home=uri or None)
    local = settings.home != MEMORY and not settings.catalog
    if local and not make and not (settings.folder / "catalog.db").exists():
        advice = "Register a model to make one, or say with --zoo or MODELKEEPER_URI where it is."
        raise ZooUnusable(str(settings.folder), "there is no zoo", advice)
    coordinator = Coordinator(settings)
    try:
        yield coordinator
    finally:
        coordinator.close()


@contextlib.contextmanager
def _called(uri: str) -> "Iterator[RemoteCoordinator]":
    from modelkeeper.coordinator.remote import RemoteCoordinator, address
    from modelkeeper.settings import Settings

    settings, token = Settings.read(), os.environ.get("MODELKEEPER_TOKEN", "")
    url = address(uri)
    assert url is not None
    coordinator = RemoteCoordinator(url, token=token, timeout=settings.timeout, spool=settings.spool or None)
    try:
        yield coordinator
    finally:
        coordinator.close()


def echo_json(data: Any) -> None:
    """Print JSON, in ASCII: text that others registered may hold what steers a terminal."""
    click.echo(json.dumps(data))


def console() -> "Console":
    """A console as wide as its terminal; in a pipe, wide enough for a table."""
    from rich.console import Console

    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(width=160 if piped else None)


@contextlib.contextmanager
def progress(label: str, *, in_bytes: bool = False) -> "Iterator[Callable[[float, float], None]]":
    """A bar on standard error, if that is a terminal. Yields what is told: how much of how much is done."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    amount = DownloadColumn() if in_bytes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), amount, Remaining())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
