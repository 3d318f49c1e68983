"""Commands about who may use a service: users, projects, tokens."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from modelkeeper.cli.options import console, echo_json, json_option, say

if TYPE_CHECKING:
    from modelkeeper.zoo.accounts.accounts import Accounts

# Those of `zoo.accounts.holders`, which imports a database; a test compares them.
SCOPES = ("read", "write", "admin", "metrics", "partner")

home_option = click.option(
    "--home", metavar="FOLDER", help="The folder of the zoo. Default: MODELKEEPER_HOME, or ~/.modelkeeper."
)
catalog_option = click.option(
    "--catalog", metavar="URL", help="A SQLAlchemy URL of the catalog. Default: a file in the home."
)


@click.group()
def user() -> None:
    """Who may use a service: add, list, remove users, give their models to others.

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
    quotas: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    with _accounts(home, catalog, make=True) as accounts:
        added = accounts.add_user(name, **quotas)
        say(f"{added.name} ({added.id}) is a user.")


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
        print_rows(
            [msgspec.to_builtins(account) for account in accounts.users()], as_json, "There are no users."
        )


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


@user.command("give")
@click.argument("giver", metavar="FROM")
@click.argument("taker", metavar="TO")
@home_option
@catalog_option
def give_models(giver: str, taker: str, home: str | None, catalog: str | None) -> None:
    """Make all models of FROM models of the user TO, who may then change and remove them.

    FROM is a user, by name or id, or the id of one who was removed: `modelkeeper show` says whose a model is.

    \b
      modelkeeper user give 3fa9c2d1e0b4a567 bob --home zoo/
    """
    with _accounts(home, catalog) as accounts:
        say(f"{accounts.give(giver, taker):,} models of {giver} are now those of {taker}.")


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
    with _accounts(home, catalog, make=not members) as accounts:
        name = accounts.add_project(name, members)
        known = next(known for known in accounts.projects() if known.name == name)
        say(f"{name} ({known.id}) has {len(known.members)} members.")


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
    import msgspec

    with _accounts(home, catalog) as accounts:
        rows = [msgspec.to_builtins(known) for known in accounts.projects()]
        print_rows(rows, as_json, "There are no projects.")


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
    type=click.Choice(SCOPES),
    default="write",
    show_default=True,
    help="What it may be used for: read, write and admin include those before them, metrics nothing else, "
    "partner what was published to other organisations.",
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
        print_rows(
            [msgspec.to_builtins(known) for known in accounts.tokens()], as_json, "There are no tokens."
        )


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
def _accounts(home: str | None, catalog: str | None, *, make: bool = False) -> "Iterator[Accounts]":
    """The accounts of a zoo; one that is not there is made only for those who come first."""
    from modelkeeper.coordinator import open_local

    with contextlib.closing(open_local(home, make=make, catalog=catalog)) as coordinator:
        yield coordinator.accounts


def _done(was_there: bool, done: str, missing: str) -> None:
    """Say what was done, or fail because it was not there."""
    if not was_there:
        raise click.ClickException(missing)
    say(done)


def print_rows(rows: list[dict[str, Any]], as_json: bool, nothing: str) -> None:
    """Rows as JSON, or as a table."""
    if as_json:
        echo_json(rows)
    elif not rows:
        say(nothing)
    else:
        from modelkeeper.cli.fitting import FittingTable
        from modelkeeper.display.consoles import plain

        table = FittingTable(list(rows[0]), ("user_id", "maker", "note", "created"))
        for row in rows:
            table.add_row(*(plain(_cell(name, value)) for name, value in row.items()))
        console().print(table)


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name in ("created", "expires"):
        from datetime import datetime

        return datetime.fromtimestamp(value).astimezone().isoformat(sep=" ", timespec="minutes")
    if name == "bytes":
        from modelkeeper.text import size

        return size(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, list | tuple) else str(value)


COMMANDS = (user, project, token)
