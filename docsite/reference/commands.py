"""The page of commands: each with its usage, help, arguments and options, as click knows them."""

import inspect
import re
from collections.abc import Iterator

import click

from docsite.reference.tables import code, table
from modelkeeper.cli import main

NAME = "modelkeeper"


def walk(
    command: click.Command, parents: tuple[str, ...] = (NAME,)
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """A command and all below it, with the words that call each."""
    yield parents, command
    if isinstance(command, click.Group):
        for name, below in sorted(command.commands.items()):
            yield from walk(below, (*parents, name))


def page() -> str:
    """The whole page."""
    return "\n".join(
        [
            "# Commands",
            "",
            "What `--help` says of each command. An overview is in [the command line](../commands.md).",
            "",
        ]
        + [section(words, command) for words, command in walk(main)]
    )


def section(words: tuple[str, ...], command: click.Command) -> str:
    """One command."""
    context = click.Context(command, info_name=" ".join(words))
    usage = " ".join([" ".join(words), *command.collect_usage_pieces(context)])
    hashes = "#" * (1 + min(len(words), 2))
    options = [
        each for each in command.get_params(context) if isinstance(each, click.Option) and not each.hidden
    ]
    shown = table(
        ("option", "what it does"), [_option(each, context) for each in options if each.name != "help"]
    )
    return f"{hashes} {' '.join(words)}\n\n```\n{usage}\n```\n\n{prose(command.help or '')}\n\n{shown}"


def prose(text: str) -> str:
    """The help of a command as Markdown: what stands behind a `\\b` is kept line by line."""
    parts = []
    for paragraph in re.split(r"\n[ ]*\n", inspect.cleandoc(text)):
        as_it_is, body = paragraph.startswith("\b"), paragraph.removeprefix("\b").strip("\n")
        parts.append(f"```\n{inspect.cleandoc(body)}\n```" if as_it_is else _escaped(body))
    return "\n\n".join(parts)


def _escaped(text: str) -> str:
    """Prose of a terminal in Markdown: what looks like a tag is none, and words with underscores stay so."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if at % 2 else re.sub(r"([<*_\[\]])", r"\\\1", part) for at, part in enumerate(parts))


def _option(option: click.Option, context: click.Context) -> tuple[str, str]:
    record = option.get_help_record(context)
    assert record is not None
    return code(record[0]), _escaped(record[1])
