"""Commands about models that go to others, or come from them: export, publish, and bundles for `import`."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import click

from modelkeeper.cli.options import (
    console,
    echo_json,
    json_option,
    looked_into,
    opened,
    progress,
    say,
    waiting,
    zoo_option,
)
from modelkeeper.errors import InvalidSetting, ModelKeeperError

if TYPE_CHECKING:
    from modelkeeper.sharing import Export, Outcome, Rules

STREAM = "-"


@click.command()
@click.argument("models", metavar="ID...", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    help="The file to write; one that was begun and stopped is finished. Default: standard output.",
)
@click.option(
    "--ancestors", is_flag=True, help="With the models that they descend from, as far as they are there."
)
@click.option(
    "--origin", default="", metavar="NAME", help="What your zoo is called for those who import them."
)
@click.option("--yes", is_flag=True, help="Do not ask. Without a terminal nothing is asked.")
@zoo_option
@json_option("Print what leaves as JSON, on standard error if the bundle goes to standard output.")
def export(
    models: tuple[str, ...],
    output: str | None,
    ancestors: bool,
    origin: str,
    yes: bool,
    zoo: str | None,
    as_json: bool,
) -> None:
    """Write models with all that belongs to them into one file, a bundle, for somebody else's zoo.

    ID... are as for `modelkeeper show`. A bundle is a plain tar: weights as safetensors, the rest as JSON,
    with cards and signatures. What leaves is shown first. Weights can tell what they were trained on: see
    docs/sharing.md. Evidence, projects and who used a model stay here.

    \b
      modelkeeper export resnet20 -o resnet20.mk
      modelkeeper export resnet20 3fa9 --ancestors > bundle.mk
    """
    from modelkeeper.sharing import Export

    if output is None and sys.stdout.isatty():
        raise InvalidSetting("the bundle", "a terminal", "give a file: -o bundle.mk, or > bundle.mk")
    with opened(zoo) as coordinator:
        leaving = Export(coordinator, models, ancestors=ancestors, origin=origin)
        _show(leaving, as_json, to_stderr=output is None)
        if not yes and sys.stdin.isatty() and sys.stderr.isatty():
            click.confirm("Shall they leave this zoo?", abort=True, err=True)
        with progress("exporting", in_bytes=True, silent=as_json) as bar:
            if output is None:
                leaving.write(sys.stdout.buffer, bar)
                sys.stdout.buffer.flush()
            else:
                leaving.save(Path(output), bar)


def _show(leaving: "Export", as_json: bool, *, to_stderr: bool) -> None:
    """Say what leaves."""
    import json

    from modelkeeper.text import count, counted, size

    rows: list[dict[str, Any]] = [
        {
            "id": item.record.id,
            "name": item.record.name,
            "owner": item.record.owner,
            "parameters": item.record.parameters,
            "bytes": item.record.bytes,
            "data": item.record.data,
            "licence": item.record.licence,
            "signed": bool(item.record.signer),
        }
        for item in leaving.bundle.models
    ]
    if as_json:
        click.echo(json.dumps({"models": rows, "bytes": leaving.length}), err=to_stderr)
        return
    for row in rows:
        said = [f"{count(row['parameters'])} parameters", size(row["bytes"])]
        said += [f"data {row['data']}" if row["data"] else "data not known", row["licence"] or "NO LICENCE"]
        said += ["signed" if row["signed"] else "not signed"]
        say(f"leaves: {row['name']} ({row['id']}) of {row['owner']}: {', '.join(said)}", err=to_stderr)
    for remark in leaving.remarks:
        say(remark, err=to_stderr)
    say(f"{counted(len(rows), 'model')}, {size(leaving.length)} in all", err=to_stderr)


def rules_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of `import` that say what of a bundle may come in."""
    for option in (
        click.option(
            "--signed", is_flag=True, help="Of a bundle: only models signed by a key that you trust."
        ),
        click.option(
            "--signed-by", multiple=True, metavar="PUBLIC-KEY", help="Of a bundle: by one of these."
        ),
        click.option(
            "--allow-licence", multiple=True, help="Of a bundle: only models with one of these licences."
        ),
        click.option("--max-size", metavar="SIZE", help="Of a bundle: only models of at most so many bytes."),
        click.option("--origin", default="", help="Of a bundle: what the zoo is called that it comes from."),
    ):
        command = option(command)
    return command


def are_bundles(paths: tuple[str, ...]) -> bool:
    """Are they bundles, rather than models of other kinds?

    Raises:
        InvalidSetting: Some of them are.
    """
    from modelkeeper.sharing.bundle import is_bundle

    found = [path == STREAM or is_bundle(Path(path)) for path in paths]
    if any(found) and not all(found):
        raise InvalidSetting("PATH...", "bundles and others", "import bundles by themselves")
    return all(found)


def bring(paths: tuple[str, ...], zoo: str | None, *, dry_run: bool, as_json: bool, **given: Any) -> None:
    """Import bundles, and say what became of each of their models."""
    from modelkeeper.connection import login
    from modelkeeper.sharing import import_bundle

    done: list[Outcome] = []
    rules, failed = _rules(given), None
    with opened(looked_into(zoo) if dry_run else zoo, make=True) as coordinator:
        try:
            for path in paths:
                with _reading(path, silent=as_json) as file:
                    how = {"owner": login(), "origin": given["origin"], "dry_run": dry_run}
                    for outcome in import_bundle(file, coordinator, rules, **how):
                        done.append(outcome)  # noqa: PERF402  # what came before a failure is told, too
        except ModelKeeperError as problem:
            failed = problem
    if as_json:
        echo_json([outcome.to_dict() for outcome in done])
    else:
        _print(done)
    if failed:
        raise failed
    if any(outcome.status == "refused" for outcome in done):
        click.get_current_context().exit(1)


@contextlib.contextmanager
def _reading(path: str, *, silent: bool) -> Iterator[BinaryIO]:
    """A bundle, while a bar shows how much of it was read; of standard input nobody knows how much comes."""
    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(progress("importing", in_bytes=True, silent=silent))
        if path == STREAM:
            yield cast(BinaryIO, _Counted(sys.stdin.buffer, 0, bar))
        else:
            file = stack.enter_context(open(path, "rb"))
            yield cast(BinaryIO, _Counted(file, Path(path).stat().st_size, bar))


class _Counted:
    """A file that is read from its beginning to its end, and tells how far that is."""

    def __init__(self, file: BinaryIO, total: int, bar: Callable[[float, float], None]) -> None:
        self._file, self._total, self._bar, self._done = file, total, bar, 0

    def read(self, most: int = -1) -> bytes:
        piece = self._file.read(most)
        self._done += len(piece)
        self._bar(self._done, self._total)
        return piece


def _rules(given: dict[str, Any]) -> "Rules":
    from modelkeeper.settings import Settings, parse_bytes
    from modelkeeper.sharing import Rules
    from modelkeeper.signing import PublicKey
    from modelkeeper.signing.trusted import Trusted
    from modelkeeper.zoo.records import PROJECT, PUBLIC

    signers = [PublicKey.read(key)[0].id for key in given["signed_by"]]
    if given["signed"]:
        signers += Trusted.of(Settings.read().trusted).keys()
    most = given["max_size"]
    return Rules(
        signers=tuple(signers) if signers or given["signed"] else None,
        licences=tuple(given["allow_licence"]),
        most_bytes=None if most is None else parse_bytes("--max-size", most),
        project=given["project"] or "",
        visibility=given["visibility"] or (PROJECT if given["project"] else PUBLIC),
    )


def _print(done: "list[Outcome]") -> None:
    from rich.table import Table

    from modelkeeper.display.consoles import plain
    from modelkeeper.text import count, size

    table = Table(header_style="bold")
    for heading in ("id", "name", "parameters", "size", "data", "licence", "signed by", "what"):
        table.add_column(heading, overflow="fold")
    for outcome in done:
        what = f"{outcome.status}: {outcome.reason}" if outcome.reason else outcome.status
        numbers = count(outcome.parameters), size(outcome.bytes)
        said = outcome.data, outcome.licence, outcome.signer[:16], what
        table.add_row(*map(plain, (outcome.id, outcome.name, *numbers, *said)))
    console().print(table)


def upstream_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of `serve` that name other zoos."""
    for option in (
        click.option(
            "--key",
            "keys",
            multiple=True,
            metavar="PUBLIC-KEY",
            help="By whose key its models must be signed; once for each --upstream, in the same order.",
        ),
        click.option(
            "--upstream",
            "upstreams",
            multiple=True,
            metavar="URL",
            help="A zoo to ask where this one has nothing good; several are asked in this order. Its token "
            "comes from the file that MODELKEEPER_UPSTREAM_TOKENS names: a line `URL TOKEN`.",
        ),
    ):
        command = option(command)
    return command


def paired_upstreams(urls: tuple[str, ...], keys: tuple[str, ...]) -> tuple[str, ...] | None:
    """Upstreams as settings have them; None: as the variable says."""
    if keys and len(keys) != len(urls):
        raise InvalidSetting("--key", f"given {len(keys)} times", f"there are {len(urls)} --upstream")
    paired = zip(urls, keys or [""] * len(urls), strict=True)
    return tuple(f"{url} {key}".strip() for url, key in paired) or None


@click.command()
@click.argument("models", metavar="ID...", nargs=-1, required=True)
@zoo_option
@json_option()
def publish(models: tuple[str, ...], zoo: str | None, as_json: bool) -> None:
    """Let partners of other organisations see models: who comes with a token of the scope `partner`.

    Only the owner of a model, or an administrator, can publish it, and only with a licence. ID... are as for
    `modelkeeper show`.

    \b
      modelkeeper publish resnet20
    """
    _publish(models, zoo, as_json, True)


@click.command()
@click.argument("models", metavar="ID...", nargs=-1, required=True)
@zoo_option
@json_option()
def unpublish(models: tuple[str, ...], zoo: str | None, as_json: bool) -> None:
    """Let partners see models no longer. What they have fetched, they have.

    ID... are as for `modelkeeper show`.

    \b
      modelkeeper unpublish resnet20
    """
    _publish(models, zoo, as_json, False)


def _publish(models: tuple[str, ...], zoo: str | None, as_json: bool, published: bool) -> None:
    from modelkeeper.connection import login

    with waiting("publishing", silent=as_json), opened(zoo) as coordinator:
        records = [coordinator.publish(name, published, user=login()) for name in models]
    if as_json:
        echo_json([record.to_dict() for record in records])
        return
    for record in records:
        say(f"{'published' if published else 'no longer published'}: {record.name} ({record.id})")


COMMANDS = (export, publish, unpublish)
