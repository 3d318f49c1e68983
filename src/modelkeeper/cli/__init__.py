"""The command line: `modelkeeper COMMAND`, also `python -m modelkeeper COMMAND`.

A command imports what it needs when it runs, so that `--help` and `--version` answer at once and no command
pays for what it does not use. What goes wrong on purpose (ModelKeeperError) is a message on standard error,
an exit code that scripts can use, and where more is said of it.
"""

import contextlib
from collections.abc import Iterator
from typing import IO, Any

import click

from modelkeeper.cli import (
    accounts,
    describing,
    doctor,
    helping,
    importing,
    keeping,
    looking_back,
    querying,
    recovering,
    serving,
    sharing,
    trusting,
)
from modelkeeper.errors import InvalidMeta, InvalidMetric, InvalidSetting, ModelKeeperError, ModelRefused
from modelkeeper.text import printable

# Exit codes: 0 done, 1 what was asked for failed, and
WRONG_CALL, COLD_START, REFUSED = 2, querying.COLD_START, querying.REFUSED
_CODES = {
    InvalidMeta: WRONG_CALL,
    InvalidMetric: WRONG_CALL,
    InvalidSetting: WRONG_CALL,
    ModelRefused: REFUSED,
}


class _Failed(click.ClickException):
    def __init__(self, error: ModelKeeperError) -> None:
        super().__init__(str(error))
        found = (code for kind, code in _CODES.items() if isinstance(error, kind))
        self.exit_code = next(found, 1)  # type: ignore[misc]  # click reads it from instances
        self.more = f"More on {error.code}: {error.page()}, or: modelkeeper error {error.code}"

    def show(self, file: IO[Any] | None = None) -> None:
        super().show(file)
        click.echo(self.more, file=file, err=True)


class _Group(click.Group):
    """A group whose commands may raise ModelKeeperError: click then prints it and exits with its code.

    What click itself says of a wrong call holds what was typed, or what a script put there: that is cleaned.
    """

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        with _cleaned():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with _cleaned():
                return super().invoke(ctx)
        except ModelKeeperError as error:
            raise _Failed(error) from error


@contextlib.contextmanager
def _cleaned() -> Iterator[None]:
    try:
        yield
    except click.ClickException as error:
        said = error.format_message
        error.format_message = lambda: printable(said())  # type: ignore[method-assign]
        raise


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="modelkeeper", help="Print the version and leave.")
def main() -> None:
    """Warm starts for neural-network training.

    Which zoo is meant is said by --zoo, or by the variable MODELKEEPER_URI; else it is ~/.modelkeeper. Of
    serve, ui, user, project and token by --home, or by MODELKEEPER_HOME.

    \b
      modelkeeper models
      modelkeeper query my_models:resnet20 --task classification --data Flowers102
      modelkeeper COMMAND --help

    \b
    Exit codes:
      0  done
      1  it failed, or a part of it; standard error or the table says why
      2  the call is wrong
      3  query, explain: a cold start, no model of the zoo is near enough
      4  register: the zoo refused the model, or had no room for it
    """


for _command in (
    *keeping.COMMANDS,
    *looking_back.COMMANDS,
    *querying.COMMANDS,
    *importing.COMMANDS,
    *sharing.COMMANDS,
    *describing.COMMANDS,
    *serving.COMMANDS,
    *accounts.COMMANDS,
    *recovering.COMMANDS,
    *trusting.COMMANDS,
    *helping.COMMANDS,
    *doctor.COMMANDS,
):
    main.add_command(_command)
