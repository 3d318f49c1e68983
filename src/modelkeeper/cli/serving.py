"""Commands around a service: serve, sync, and who may use it."""

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from modelkeeper.cli.accounts import catalog_option, home_option, print_rows
from modelkeeper.cli.options import json_option, progress, say
from modelkeeper.cli.sharing import paired_upstreams, upstream_options
from modelkeeper.errors import InvalidSetting, ModelKeeperError, NotInstalled

if TYPE_CHECKING:
    from modelkeeper.coordinator.remote.spool import Entry
    from modelkeeper.server.app import Application
    from modelkeeper.zoo.zoo import Registered


@click.command()
@home_option
@catalog_option
@click.option("--blobs", metavar="URL", help="A folder or URL for weights. Default: the home.")
@click.option("--host", help="The address to listen at. Default: 127.0.0.1, this machine alone.")
@click.option("--port", type=int, help="The port to listen at; 0: any. Default: 7433.")
@click.option("--capacity", metavar="SIZE", help="How much weight to keep, e.g. 20GB. Default: all.")
@click.option("--hosts", metavar="NAMES", help="Names that it answers to, e.g. behind a proxy. Default: all.")
@click.option(
    "--shards",
    metavar="URL",
    help="Where the search index lies in parts, e.g. ray://head:10001?shards=4&replicas=2. Default: here.",
)
@click.option("--workers", type=int, help="Processes of this machine that serve it. Default: 1.")
@upstream_options
@click.option("--no-auth", is_flag=True, help="Let everyone on this machine do everything, without tokens.")
def serve(
    home: str | None,
    catalog: str | None,
    blobs: str | None,
    host: str | None,
    port: int | None,
    capacity: str | None,
    hosts: str | None,
    shards: str | None,
    workers: int | None,
    upstreams: tuple[str, ...],
    keys: tuple[str, ...],
    no_auth: bool,
) -> None:
    """Offer a zoo over HTTP, until told to stop (Ctrl-C, SIGTERM); uploads under way are finished.

    On the first start a token of an administrator is made and shown once. All options, and the settings that
    have none, can be given as variables: MODELKEEPER_PORT, MODELKEEPER_RATE, MODELKEEPER_QUOTA_BYTES ...

    \b
      modelkeeper serve --home zoo/
      modelkeeper serve --home zoo/ --host 0.0.0.0 --capacity 500GB
      modelkeeper serve --home zoo/ --workers 4
      modelkeeper serve --home zoo/ --upstream https://zoo.partner.org
    """
    from modelkeeper.coordinator import open_local
    from modelkeeper.settings import ServiceSettings

    service_runner, application_of = _service_parts()
    service = ServiceSettings.read(
        host=host, port=port, hosts=hosts, workers=workers, auth=False if no_auth else None
    )
    asked = paired_upstreams(upstreams, keys)
    zoo = {"home": home, "catalog": catalog, "blobs": blobs, "capacity": capacity, "shards": shards}
    opened: dict[str, Any] = zoo | {"upstreams": asked}

    def began(address: str) -> None:
        say(f"ModelKeeper listens at {address}", err=True)

    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(contextlib.closing(service_runner.listen(service)))
        coordinator = open_local(**opened)
        stack.callback(coordinator.close)
        service_runner.log_to_stderr()
        if service.auth and (token := service_runner.first_token(coordinator)) is not None:
            say(f"The first administrator's token, shown only now:\n\n    {token}\n", err=True)
        application = application_of(coordinator, service)
        if service.workers > 1 and coordinator.settings.in_memory:
            raise InvalidSetting("workers", str(service.workers), "a zoo in memory is one process's; give 1")
        if service.workers == 1:
            began(service_runner.address(listening))
            service_runner.run(application, listening)
    if service.workers > 1:
        from modelkeeper.server.workers import supervise

        supervise(opened, service, began)


@click.command()
@home_option
@catalog_option
@click.option("--blobs", metavar="URL", help="A folder or URL for weights. Default: the home.")
@click.option("--port", type=int, default=0, help="The port on this machine; 0, the default: any.")
@click.option("--no-browser", is_flag=True, help="Only say where the pages are.")
def ui(home: str | None, catalog: str | None, blobs: str | None, port: int, no_browser: bool) -> None:
    """Look at a zoo in the browser, until told to stop (Ctrl-C).

    The pages are those of `modelkeeper serve`, on this machine alone, without a login.

    \b
      modelkeeper ui --home zoo/
    """
    import webbrowser

    from modelkeeper.coordinator import open_local
    from modelkeeper.settings import ServiceSettings

    service_runner, application_of = _service_parts()
    service = ServiceSettings.read(host="127.0.0.1", port=port, hosts="", workers=1, auth=False)
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(contextlib.closing(service_runner.listen(service)))
        coordinator = open_local(home, make=False, catalog=catalog, blobs=blobs)
        stack.callback(coordinator.close)
        application = application_of(coordinator, service)
        where = f"{service_runner.address(listening)}/ui"
        say(f"The zoo in {coordinator.settings.home} is at {where} (Ctrl-C ends this)", err=True)
        if not no_browser:
            webbrowser.open(where)  # the socket listens already, so it waits for what comes next
        service_runner.run(application, listening)


def _service_parts() -> "tuple[Any, type[Application]]":
    """What runs a service, and what it runs.

    Raises:
        NotInstalled: What it needs is not installed.
    """
    try:
        from modelkeeper.server import serve as service_runner
        from modelkeeper.server.app import Application
    except ModuleNotFoundError as problem:
        raise NotInstalled("a service", (problem.name or str(problem),), "server") from problem
    return service_runner, Application


@click.command()
@click.option("--spool", metavar="FOLDER", help="Default: MODELKEEPER_SPOOL, or ~/.modelkeeper/spool.")
@click.option(
    "--to",
    "named",
    multiple=True,
    metavar="ADDRESS",
    help="Send what waits for this coordinator with your token, whoever put it into the spool.",
)
@json_option()
def sync(spool: str | None, named: tuple[str, ...], as_json: bool) -> None:
    """Send models that could not be sent when they were registered.

    The token comes from the variable MODELKEEPER_TOKEN. It is sent to the address in MODELKEEPER_URI, to
    those named by --to, and where a model was to be sent with this very token; without a token models are
    sent to this machine alone. What waits for other addresses is listed, and goes on waiting.

    \b
      modelkeeper sync
      modelkeeper sync --to keeper.example.org:7433
    """
    from modelkeeper.coordinator import open_remote
    from modelkeeper.coordinator.opening import TOKEN, URI
    from modelkeeper.coordinator.remote import Spool, address
    from modelkeeper.settings import Settings, is_address

    token, given = os.environ.get(TOKEN, ""), [*named, os.environ.get(URI, "")]
    trusted = {address(text) for text in given if is_address(text)}
    if wrong := [text for text in named if not is_address(text)]:
        raise InvalidSetting("--to", repr(wrong[0]), "give the address of a coordinator")
    waiting = Spool.of(Settings.read(spool=spool).spool).entries()
    rows: list[dict[str, Any]] = []
    with progress("sending", silent=as_json) as bar:
        for url in dict.fromkeys(entry.waiting.url for entry in waiting):
            with contextlib.closing(open_remote(url, token=token, spool=spool)) as coordinator:
                for entry, result in coordinator.sync(lambda entry: entry.may_get(token, trusted)):
                    rows.append(_sent(entry, result))
                    bar(len(rows), len(waiting))
    print_rows(rows, as_json, "Nothing waits.")
    if not all(row["sent"] for row in rows):
        sys.exit(1)


def _sent(entry: "Entry", result: "Registered | ModelKeeperError") -> dict[str, Any]:
    """What became of a model that waited, as a row."""
    failed = isinstance(result, ModelKeeperError)
    request = entry.waiting.request
    return {
        "id": request.id,
        "name": request.registration.name,
        "to": entry.waiting.url,
        "result": str(result) if failed else "registered",
        "sent": not failed,
    }


COMMANDS = (serve, ui, sync)
