"""The command `doctor`: is all that is needed here, does it work, and what is to be done if not?"""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import msgspec

from modelkeeper.cli.doctor_installed import FAIL, OK, WARN, Finding, installed
from modelkeeper.cli.options import console, echo_json, json_option, progress, zoo_option

if TYPE_CHECKING:
    from rich.table import Table

_COLOURS = {OK: "green", WARN: "yellow", FAIL: "bold red"}


@click.command()
@click.option("--write", is_flag=True, help="Let the round trip go through the zoo itself, too: see below.")
@zoo_option
@json_option()
def doctor(write: bool, zoo: str | None, as_json: bool) -> None:
    """See whether everything works here, and what to do if not.

    Looked at are versions and extras, the native module, frameworks and their devices, the zoo (can it be
    opened and written, is there room) or its service (does it answer, which version, whose clock is off, what
    does the token allow). Then a tiny model goes through a temporary zoo: it is registered, lends to a wider
    one that must compute the same, and is removed. The zoo itself is not changed, but with --write: then the
    tiny model goes through it as well, and a removed model of the name modelkeeper-doctor stays in its log.

    The exit code is 1 if something failed; warnings alone are 0.

    \b
      modelkeeper doctor
      modelkeeper doctor --zoo https://keeper.example.org --write
      modelkeeper doctor --json
    """
    findings = []
    with progress("looking", silent=as_json) as bar:
        for finding in _findings(zoo, write):
            findings.append(finding)
            bar(len(findings), 0)
    failed = any(finding.state == FAIL for finding in findings)
    if as_json:
        echo_json({"ok": not failed, "checks": msgspec.to_builtins(findings)})
    else:
        console().print(_table(findings))
    if failed:
        sys.exit(1)


def _findings(zoo: str | None, write: bool) -> Iterator[Finding]:
    from modelkeeper.cli.doctor_zoo import looked_at, trip_apart, trip_into

    yield from installed()
    yield from looked_at(zoo)
    yield from trip_apart()
    if write:
        yield trip_into(zoo)


def _table(findings: list[Finding]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    from modelkeeper.display.consoles import plain

    table = Table(header_style="bold")
    table.add_column("check", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("found", overflow="fold")
    for finding in findings:
        said = plain(finding.found)
        if finding.advice:
            said.append(f"\n{finding.advice}.", style="italic")
        table.add_row(finding.check, Text(finding.state, style=_COLOURS[finding.state]), said)
    return table


COMMANDS = (doctor,)
