"""Commands about who says what: keys that sign and are trusted, and the log that nobody can rewrite."""

from typing import TYPE_CHECKING, Any

import click

from modelkeeper.cli.options import console, echo_json, json_option, opened, say, waiting, zoo_option

if TYPE_CHECKING:
    from modelkeeper.signing import PublicKey
    from modelkeeper.signing.trusted import Trusted

mine_option = click.option(
    "--mine",
    is_flag=True,
    help="Your own pinned keys (~/.modelkeeper/keys/trusted, or MODELKEEPER_TRUSTED), not those of a zoo.",
)


@click.group()
def key() -> None:
    """Who signs models, and whose signatures count: make, show, trust, list, revoke keys.

    \b
      modelkeeper key new work
      export MODELKEEPER_KEY=work
      modelkeeper key show work
      modelkeeper key trust "ed25519:5f3c... Ada of Partner" --zoo zoo/
    """


@key.command("new")
@click.argument("name", default="default")
def new(name: str) -> None:
    """Make a key that signs what you register, and print its public half.

    NAME is its name in ~/.modelkeeper/keys, or a path that ends in .pem. Nobody else may read the file. It is
    used where the setting `key` (MODELKEEPER_KEY) names it.

    \b
      modelkeeper key new work
    """
    from modelkeeper.signing import new_key, save_key
    from modelkeeper.signing.keys import place

    made, path = new_key(), place(name)
    save_key(made, path)
    say(_line(made.public))
    say(f"{path} signs what you register where MODELKEEPER_KEY={name} is set. Nobody has a copy.", err=True)


@key.command("show")
@click.argument("name", default="")
def show(name: str) -> None:
    """Print the public half of a key in one line, to hand around.

    NAME is as for `modelkeeper key new`. Default: the key that the setting `key` names, or `default`.

    \b
      modelkeeper key show work
    """
    from modelkeeper.settings import Settings
    from modelkeeper.signing import load_key
    from modelkeeper.signing.keys import place

    name = name or Settings.read().key or "default"
    say(_line(load_key(place(name)).public))


@key.command("trust")
@click.argument("line")
@click.option("--name", default="", help="Whose key it is. Default: as LINE says.")
@mine_option
@zoo_option
def trust(line: str, name: str, mine: bool, zoo: str | None) -> None:
    """Trust the public key in LINE, as `modelkeeper key show` prints it: what it signs counts as trusted.

    Of a zoo behind HTTP that takes a token with the scope admin.

    \b
      modelkeeper key trust "ed25519:5f3c... Ada of Partner" --zoo zoo/
      modelkeeper key trust "ed25519:5f3c..." --name Ada --mine
    """
    from modelkeeper.connection import login
    from modelkeeper.signing import PublicKey

    public, said = PublicKey.read(line)
    if mine:
        _pinned().add(public, name or said)
    else:
        with opened(zoo, make=True) as coordinator:
            coordinator.trust_key(line, name, user=login())
    say(f"{name or said or 'key'} ({public.id}) is trusted.")


@key.command("list")
@mine_option
@zoo_option
@json_option()
def list_keys(mine: bool, zoo: str | None, as_json: bool) -> None:
    """List the public keys that are trusted, and those that were.

    \b
      modelkeeper key list --zoo zoo/
      modelkeeper key list --mine
    """
    rows: list[dict[str, Any]]
    if mine:
        pinned = _pinned().keys().items()
        rows = [{"id": id_, "public": public.raw.hex(), "name": name} for id_, (public, name) in pinned]
    else:
        with opened(zoo) as coordinator:
            rows = [known.to_dict() for known in coordinator.trusted_keys()]
    if as_json:
        echo_json(rows)
        return
    from modelkeeper.cli import tables

    console().print(
        tables.keys(rows) if rows else "No key is trusted here: `modelkeeper key trust` adds one."
    )


@key.command("revoke")
@click.argument("id")
@mine_option
@zoo_option
def revoke(id: str, mine: bool, zoo: str | None) -> None:  # noqa: A002  # as the list calls it
    """Trust the public key with this ID no more; four letters of it are enough.

    \b
      modelkeeper key revoke 56475aa7 --zoo zoo/
    """
    from modelkeeper.connection import login

    if mine:
        pinned = _pinned().keys()
        found = [known for known in pinned if len(id) >= 4 and known.startswith(id)]
        if len(found) != 1 or not _pinned().remove(found[0]):
            raise click.ClickException(f"No pinned key alone has the id {id!r}.")
        say(f"{found[0]} is not trusted any more.")
        return
    with opened(zoo) as coordinator:
        gone = coordinator.revoke_key(id, user=login())
    say(f"{gone.name} ({gone.id}) is not trusted any more.")


@click.command()
@click.option("--since", default="", metavar="HEAD", help="A head that an earlier audit printed.")
@zoo_option
@json_option("Print what was found as JSON.")
def audit(since: str, zoo: str | None, as_json: bool) -> None:
    """Verify the log of registrations, loans, removals, pins and keys, and compare it with the zoo.

    Prints the head: keep it where nobody of this zoo can write. With --since it is then proved that nothing
    before it was rewritten. Exit code 1: something does not fit. Behind HTTP it takes the scope admin.

    \b
      modelkeeper audit
      modelkeeper audit --since 1042:5f3c...
    """
    with waiting("reading the log", silent=as_json), opened(zoo) as coordinator:
        found = coordinator.audit(since)
    if as_json:
        echo_json(found.to_dict())
    else:
        from modelkeeper.cli import tables

        console().print(tables.audited(found, since))
    if not found.whole:
        click.get_current_context().exit(1)


def _line(public: "PublicKey") -> str:
    """A public key with the name of who uses this machine."""
    from modelkeeper.connection import login

    return public.line(login())


def _pinned() -> "Trusted":
    from modelkeeper.settings import Settings
    from modelkeeper.signing.trusted import Trusted

    return Trusted.of(Settings.read().trusted)


COMMANDS = (key, audit)
