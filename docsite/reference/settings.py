"""The page of settings: name, variable, default and meaning of each, read from the structs that hold them.

The meaning is the comment behind a field of `modelkeeper.settings`, so that there is one place for it.
"""

import inspect
import io
import tokenize
from collections.abc import Iterator

from docsite.reference.tables import code, table
from modelkeeper.settings import PREFIX, ServiceSettings, Settings

BEFORE = """# Settings

By keyword, `ModelKeeperClient("zoo/", capacity="20GB")`, by variable, or in the options of a command. Which
zoo is meant is said by `MODELKEEPER_URI` (a folder, or the address of a coordinator; `~/.modelkeeper` if
nothing says), whom a coordinator takes you for by `MODELKEEPER_TOKEN`. Sizes are written `20GB` or `512MiB`,
lists with commas, flags `true` or `false`. A value that cannot work is refused
([invalid_setting](../troubleshooting.md#invalid_setting)).

"""


def meanings(struct: type) -> dict[str, str]:
    """What each field of a struct means: the comments in its lines."""
    source = inspect.getsource(struct)
    said: dict[str, str] = {}
    field = ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        names = struct.__struct_fields__  # type: ignore[attr-defined]
        if token.type == tokenize.NAME and token.start[1] == 4 and token.string in names:
            field = token.string
        elif token.type == tokenize.COMMENT and field:
            said[field] = token.string.lstrip("# ")
        elif token.type == tokenize.NEWLINE:
            field = ""
    return said


def rows(struct: type) -> Iterator[tuple[str, str, str, str]]:
    """Name, variable, default and meaning of each setting of a struct."""
    meaning = meanings(struct)
    for name, default in zip(struct.__struct_fields__, struct.__struct_defaults__, strict=True):  # type: ignore[attr-defined]
        yield code(name), code(PREFIX + name.upper()), code(_default(default)), meaning[name]


def _default(value: object) -> str:
    if value in ("", (), None):
        return ""
    return (
        str(value).lower()
        if isinstance(value, bool)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def page() -> str:
    """The whole page."""
    headings = ("name", "variable", "default", "meaning")
    return (
        BEFORE
        + "## Of a zoo\n\n"
        + table(headings, rows(Settings))
        + "\n## Of a service\n\nBesides those of its zoo. Some are options of `modelkeeper serve`, too.\n\n"
        + table(headings, rows(ServiceSettings))
    )
