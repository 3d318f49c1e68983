"""Commands for whoever is new here, or stuck: what an error means, and how a shell completes commands."""

import difflib
import os
from pathlib import Path

import click

from modelkeeper.cli.options import echo_json, json_option, say
from modelkeeper.errors import kinds


@click.command()
@click.argument("code", default="")
@json_option("Print JSON.")
def error(code: str, as_json: bool) -> None:
    """Say what an error means and what to do about it.

    CODE is what the message ends with, what the service calls `code`, or the class in Python.
    Without it all codes are listed.

    \b
      modelkeeper error invalid_meta
    """
    known = {kind.code: (" ".join(str(kind.__doc__).split()), kind.remedy) for kind in kinds()}
    code = {kind.__name__: kind.code for kind in kinds()}.get(code, code)
    if code and code not in known:
        near = difflib.get_close_matches(code, known)
        meant = f"did you mean {' or '.join(near)}? Without" if near else "without"
        raise click.UsageError(f"there is no error {code!r}; {meant} a code all of them are listed.")
    chosen = {code: known[code]} if code else dict(sorted(known.items()))
    if as_json:
        rows = [{"code": name, "cause": cause, "remedy": remedy} for name, (cause, remedy) in chosen.items()]
        echo_json(rows)
        return
    say("\n\n".join(f"{name}\n  {cause}\n  {remedy}" for name, (cause, remedy) in chosen.items()))


# What each shell reads when it starts, and the line that lets it complete commands.
_SHELLS = {
    "bash": ("~/.bashrc", 'eval "$(_MODELKEEPER_COMPLETE=bash_source modelkeeper)"'),
    "zsh": ("~/.zshrc", 'eval "$(_MODELKEEPER_COMPLETE=zsh_source modelkeeper)"'),
    "fish": (
        "~/.config/fish/completions/modelkeeper.fish",
        "_MODELKEEPER_COMPLETE=fish_source modelkeeper | source",
    ),
}


@click.command()
@click.argument("shell", type=click.Choice(list(_SHELLS)), required=False)
def completion(shell: str | None) -> None:
    """Print the line that lets a shell complete commands, options and their values.

    SHELL is bash (4.4 or newer), zsh or fish. Default: the one in the variable SHELL.

    \b
      modelkeeper completion bash >> ~/.bashrc
    """
    shell = shell or Path(os.environ.get("SHELL", "")).name
    if shell not in _SHELLS:
        raise click.UsageError(f"the shell {shell!r} is not known: give {', '.join(_SHELLS)}.")
    where, line = _SHELLS[shell]
    say(line)
    say(f"Add this line to {where}, then open a new shell.", err=True)


COMMANDS = (error, completion)
