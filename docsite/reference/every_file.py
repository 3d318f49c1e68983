"""The page of files: what each file of the package is for, as it says itself at its top, room by room.

Nothing is typed here: a new file is on the page as soon as it is there.
"""

import ast
import re
from pathlib import Path

from docsite.reference.tables import code, table
from docsite.repository import ROOT

BEFORE = """# Every file

What each file of the package is for: the first words at its top. In which order rooms import from one another
is in [the map](../repository/CONTRIBUTING.md#the-map).

"""
PLACES = ("src/modelkeeper", "src/native")
_COMMENT = re.compile(r"(?://|/\*)\s*(?P<words>.*?)\s*(?:\*/)?$")


def purpose(path: Path) -> str:
    """What a file says of itself in its first paragraph or line; nothing for data and templates."""
    if path.suffix in (".py", ".pyi"):
        words = ast.get_docstring(ast.parse(path.read_text())) or ""
        return " ".join(words.partition("\n\n")[0].split())
    if path.suffix in (".cpp", ".hpp", ".js", ".css"):
        comment = _COMMENT.match(path.read_text().partition("\n")[0])
        return comment["words"] if comment else ""
    return ""


def rooms() -> dict[str, dict[str, str]]:
    """What the files of each folder are for, by name; what others have written is left out."""
    found: dict[str, dict[str, str]] = {}
    for place in PLACES:
        for path in sorted((ROOT / place).rglob("*"), key=lambda path: (path.parent, path.name)):
            if path.is_file() and "vendor" not in path.parts and (words := purpose(path)):
                found.setdefault(path.parent.relative_to(ROOT).as_posix(), {})[path.name] = words
    return found


def page() -> str:
    """The whole page."""
    parts = [BEFORE]
    for room, files in rooms().items():
        about = files.pop("__init__.py", "")
        listed = table(("file", "what for"), ((code(name), words) for name, words in files.items()))
        parts += [f"## {room.removeprefix('src/')}", "", *([about, ""] if about else []), listed]
    return "\n".join(parts)
