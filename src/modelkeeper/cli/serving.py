"""Commands around a service: serve, sync, and who may use it."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from modelkeeper.cli.options import console, echo_json, json_option, say
from modelkeeper.errors import InvalidSetting, ModelKeeperError

if TYPE_CHECKING:
    from modelkeeper.coordinator.remote.spool import Entry
    from modelkeeper.zoo.accounts import Accounts
    from modelkeeper.zoo.zoo import Registered

home_option = click.option(
    "--home", metavar="FOLDER", help="The folder of the zoo. Default: MODELKEEPER_HOME, or ~/.modelkeeper."
)
catalog_option = click.option(
    "--catalog", metavar="URL", help="A SQLAlchemy URL of the catalog. Default: a file in the home."
)


@click.command()
@home_option
@catalog_option
@click.option("--blobs", metavar="URL", help="A folder or URL for weights. Default: the home.")
@click.option("--host", help="The address to listen at. Default: 127.0.0.1, this machine alone.")
@click.option("--port", type=int, help="The port to listen at; 0: any. Default: 7433.")
@click.option("--capacity", metavar="SIZE", help="How much weight to keep, e.g. 20GB. Default: all.")
@click.option("--hosts", metavar="NAMES", help="Names that it answers to, e.g. behind a proxy. Default: all.")
@click.option(
    "--upstream",
    "upstreams",
    multiple=True,
    metavar="URL",
    help="A zoo to ask where this one has nothing good; several are asked in this order. Its token comes "
    "from the file that MODELKEEPER_UPSTREAM_TOKENS names: a line `URL TOKEN`.",
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="PUBLIC-KEY",
    help="By whose key its models must be signed; once for each --upstream, in the same order.",
)
@click.option("--no-auth", is_flag=True, help="Let everyone on this machine do everything, without tokens.")
def serve(
    home: str | None,
    catalog: str | None,
    blobs: str | None,
    host: str | None,
    port: int | None,
    capacity: str | None,
    hosts: str | None,
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
      modelkeeper serve --home zoo/ --upstream https://zoo.partner.org
    """
    try:
        from modelkeeper.server import serve as service_runner
        from modelkeeper.server.app import Application
    except ImportError as problem:
        advice = f"{problem}; install it: pip install 'modelkeeper[server]'"
        raise InvalidSetting("a service", "run", advice) from problem
    from modelkeeper.coordinator import open_local
    from modelkeeper.settings import ServiceSettings

    service = ServiceSettings.read(host=host, port=port, hosts=hosts, auth=False if no_auth else None)
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(contextlib.closing(service_runner.listen(service)))
        asked = _upstreams(upstreams, keys)
        coordinator = open_local(home, catalog=catalog, blobs=blobs, capacity=capacity, upstreams=asked)
        stack.callback(coordinator.close)
        service_runner.log_to_stderr()
        if service.auth and (token := service_runner.first_token(coordinator)) is not None:
            say(f"The first administrator's token, shown only now:\n\n    {token}\n", err=True)
        application = Application(coordinator, service)
        say(f"ModelKeeper listens at {service_runner.address(listening)}", err=True)
        service_runner.run(application, listening)


def _upstreams(urls: tuple[str, ...], keys: tuple[str, ...]) -> tuple[str, ...] | None:
    """Upstreams as settings have them; None: as the variable says."""
    if keys and len(keys) != len(urls):
        raise InvalidSetting("--key", f"given {len(keys)} times", f"there are {len(urls)} --upstream")
    paired = zip(urls, keys or [""] * len(urls), strict=True)
    return tuple(f"{url} {key}".strip() for url, key in paired) or None


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
    for url in dict.fromkeys(entry.waiting.url for entry in waiting):
        with contextlib.closing(open_remote(url, token=token, spool=spool)) as coordinator:
            results = coordinator.sync(lambda entry: entry.may_get(token, trusted))
            rows += [_sent(entry, result) for entry, result in results]
    _print(rows, as_json, "Nothing waits.")
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


@click.group()
def user() -> None:
    """Who may use a service: add, list, remove users.

    \b
      modelkeeper user add ada --models 100
    """


@user.command("add")
@click.argument("name")
@click.option("--bytes", "size", metavar="SIZE", help="How much weight they may keep, e.g. 20GB.")
@click.option("--models", type=click.IntRange(0), help="How many models they may keep.")
@click.option("--pins", type=click.IntRange(0), help="How many models they may pin.")
@click.option("--rate", type=float, help="How many requests per second they may make.")
@home_option
@catalog_option
def add_user(
    name: str,
    size: str | None,
    models: int | None,
    pins: int | None,
    rate: float | None,
    home: str | None,
    catalog: str | None,
) -> None:
    """Add the user NAME, or change the quotas of one who is there.

    \b
      modelkeeper user add ada --bytes 20GB --home zoo/
    """
    from modelkeeper.settings import parse_bytes

    kept = None if size is None else parse_bytes("bytes", size)
    given = {"bytes": kept, "models": models, "pins": pins, "rate": rate}
    quotas = {key: value for key, value in given.items() if value is not None}
    with _accounts(home, catalog) as accounts:
        say(f"{accounts.add_user(name, **quotas).name} is a user.")


@user.command("list")
@home_option
@catalog_option
@json_option()
def list_users(home: str | None, catalog: str | None, as_json: bool) -> None:
    """List all users.

    \b
      modelkeeper user list --home zoo/
    """
    import msgspec

    with _accounts(home, catalog) as accounts:
        _print([msgspec.to_builtins(account) for account in accounts.users()], as_json, "There are no users.")


@user.command("remove")
@click.argument("name")
@home_option
@catalog_option
def remove_user(name: str, home: str | None, catalog: str | None) -> None:
    """Remove the user NAME with all tokens. Models stay.

    \b
      modelkeeper user remove ada --home zoo/
    """
    with _accounts(home, catalog) as accounts:
        _done(accounts.remove_user(name), f"{name} is no user any more.", f"There is no user {name!r}.")


@click.group()
def project() -> None:
    """Whose models are seen by whom: projects and their members.

    \b
      modelkeeper project add vision ada bob
    """


@project.command("add")
@click.argument("name")
@click.argument("members", nargs=-1)
@home_option
@catalog_option
def add_project(name: str, members: tuple[str, ...], home: str | None, catalog: str | None) -> None:
    """Add the project NAME, and make users its MEMBERS.

    \b
      modelkeeper project add vision ada bob --home zoo/
    """
    with _accounts(home, catalog) as accounts:
        accounts.add_project(name)
        for member in members:
            accounts.join(name, member)
        say(f"{name} has {len(accounts.projects()[name])} members.")


@project.command("leave")
@click.argument("name")
@click.argument("member")
@home_option
@catalog_option
def leave_project(name: str, member: str, home: str | None, catalog: str | None) -> None:
    """End that the user MEMBER belongs to the project NAME.

    \b
      modelkeeper project leave vision ada --home zoo/
    """
    with _accounts(home, catalog) as accounts:
        _done(accounts.leave(name, member), f"{member} left {name}.", f"{member!r} was not in {name!r}.")


@project.command("list")
@home_option
@catalog_option
@json_option()
def list_projects(home: str | None, catalog: str | None, as_json: bool) -> None:
    """List all projects with their members.

    \b
      modelkeeper project list --home zoo/
    """
    with _accounts(home, catalog) as accounts:
        rows = [{"name": name, "members": list(members)} for name, members in accounts.projects().items()]
        _print(rows, as_json, "There are no projects.")


@project.command("remove")
@click.argument("name")
@home_option
@catalog_option
def remove_project(name: str, home: str | None, catalog: str | None) -> None:
    """Remove the project NAME. Its models are then seen by their owners alone.

    \b
      modelkeeper project remove vision --home zoo/
    """
    with _accounts(home, catalog) as accounts:
        _done(accounts.remove_project(name), f"{name} is gone.", f"There is no project {name!r}.")


@click.group()
def token() -> None:
    """What users show to a service: add, list, revoke tokens.

    \b
      modelkeeper token add ada --scope write --days 90
    """


@token.command("add")
@click.argument("user_name", metavar="USER")
@click.option(
    "--scope",
    type=click.Choice(("read", "write", "admin", "metrics")),
    default="write",
    show_default=True,
    help="What it may be used for: read, write and admin include those before them, metrics nothing else.",
)
@click.option("--days", type=float, help="After how many days it expires. Default: never.")
@click.option("--note", default="", help="What it is for, e.g. the name of a machine.")
@home_option
@catalog_option
def add_token(
    user_name: str, scope: str, days: float | None, note: str, home: str | None, catalog: str | None
) -> None:
    """Make a token for USER. It is printed once, and nowhere kept.

    \b
      modelkeeper token add ada --scope read --days 30 --home zoo/
    """
    with _accounts(home, catalog) as accounts:
        say(accounts.add_token(user_name, scope, days=days, note=note))


@token.command("list")
@home_option
@catalog_option
@json_option()
def list_tokens(home: str | None, catalog: str | None, as_json: bool) -> None:
    """List what is known of all tokens: not their secrets.

    \b
      modelkeeper token list --home zoo/
    """
    import msgspec

    with _accounts(home, catalog) as accounts:
        _print([msgspec.to_builtins(known) for known in accounts.tokens()], as_json, "There are no tokens.")


@token.command("revoke")
@click.argument("id")
@home_option
@catalog_option
def revoke_token(id: str, home: str | None, catalog: str | None) -> None:  # noqa: A002  # as the list calls it
    """Revoke the token with this ID (the part behind `mk_`). A service notices within two seconds.

    \b
      modelkeeper token revoke 0123456789abcdef --home zoo/
    """
    with _accounts(home, catalog) as accounts:
        _done(accounts.revoke(id), f"{id} is revoked.", f"There is no token {id!r}.")


@contextlib.contextmanager
def _accounts(home: str | None, catalog: str | None) -> "Iterator[Accounts]":
    """The accounts of a zoo; a new home is made."""
    from modelkeeper.coordinator import open_local

    with contextlib.closing(open_local(home, catalog=catalog)) as coordinator:
        yield coordinator.accounts


def _done(was_there: bool, done: str, missing: str) -> None:
    """Say what was done, or fail because it was not there."""
    if not was_there:
        raise click.ClickException(missing)
    say(done)


def _print(rows: list[dict[str, Any]], as_json: bool, nothing: str) -> None:
    """Rows as JSON, or as a table."""
    if as_json:
        echo_json(rows)
    elif not rows:
        say(nothing)
    else:
        from rich.table import Table

        from modelkeeper.display.consoles import plain

        table = Table(header_style="bold")
        for heading in rows[0]:
            table.add_column(heading, overflow="fold")
        for row in rows:
            table.add_row(*(plain(_cell(name, value)) for name, value in row.items()))
        console().print(table)


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name in ("created", "expires"):
        from datetime import datetime

        return datetime.fromtimestamp(value).astimezone().isoformat(sep=" ", timespec="minutes")
    return ", ".join(value) if isinstance(value, list) else str(value)


COMMANDS = (serve, sync, user, project, token)
