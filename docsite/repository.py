"""Which files outside of docs/ belong to the site, since pages link to them?

Pages link to files as a reader of the repository finds them: `../benchmarks/results/pairs.md`,
`../examples/demo.py`. Each such file becomes a part of the site, below `repository/`: a page if it is text
for people, with its code if it is a program, a list if it is a folder; a file to download if it is data.
Links are moved there; what they name must exist.

    linked(markdown)                    the paths that links of a page name
    home("benchmarks/results/pairs.md") where a file of the repository lies in the site
    moved(markdown, page)               a page with its links moved
"""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parent.parent
DOCS = "docs"
REFERENCE = f"{DOCS}/reference/"  # pages that only the site has
DATA = (".json", ".svg", ".png")
LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".service": "ini", ".conf": "nginx", "": ""}

_FENCE = re.compile(r"(^ {0,3}(?:```|~~~).*?^ {0,3}(?:```|~~~)\s*$)", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?<=\]\()(?P<path>[^)#\s:]+)(?=[)#])")


def prose(markdown: str) -> Iterator[tuple[bool, str]]:
    """The parts of a page, and whether each is prose; what stands in fences is none."""
    for number, part in enumerate(_FENCE.split(markdown)):
        yield number % 2 == 0, part


def linked(markdown: str) -> Iterator[str]:
    """Paths that links of a page name, as they stand there; addresses of other hosts are none."""
    for text, part in prose(markdown):
        if text:
            yield from (match["path"] for match in _LINK.finditer(part))


def resolved(path: str, page: str) -> str:
    """The path of a link in a page, from the root of the repository."""
    return os.path.normpath(PurePosixPath(page).parent / path).replace(os.sep, "/")


def home(path: str) -> str:
    """Where a file of the repository lies in the site, from its root."""
    inside = PurePosixPath(path)
    if inside.parts[0] == DOCS:
        return inside.relative_to(DOCS).as_posix()
    if (ROOT / path).is_dir():
        return f"repository/{path}/index.md"
    if inside.suffix in (".md", *DATA):
        return f"repository/{path}"
    return f"repository/{path}.md"


def moved(markdown: str, page: str) -> str:
    """A page of the repository with its links leading to where files lie in the site."""

    def target(match: re.Match[str]) -> str:
        path = resolved(match["path"], page)
        if not path.startswith(REFERENCE) and (path.startswith("..") or not (ROOT / path).exists()):
            return match["path"]  # MkDocs says what is wrong with it
        return os.path.relpath(home(path), PurePosixPath(home(page)).parent)

    return "".join(_LINK.sub(target, part) if text else part for text, part in prose(markdown))


def outside(pages: Iterable[str]) -> dict[str, str]:
    """Every path outside of docs/ that pages link to, or that these link to, by where it lies in the site."""
    found: dict[str, str] = {}
    waiting = list(pages)
    while waiting:
        page = waiting.pop()
        for link in linked(as_page(page)):
            path = resolved(link, page if not (ROOT / page).is_dir() else f"{page}/index.md")
            inside = not path.startswith((f"{DOCS}/", "..")) and (ROOT / path).exists()
            if inside and home(path) not in found:
                found[home(path)] = path
                if path.endswith(".md") or (ROOT / path).is_dir():
                    waiting.append(path)
    return found


def as_page(path: str) -> str:
    """A file or folder of the repository as a page."""
    if (ROOT / path).is_dir():
        pages = sorted((ROOT / path).glob("*.md"))
        titles = {page.name: page.read_text().partition("\n")[0].lstrip("# ") for page in pages}
        return "\n".join([f"# {path}\n", *(f"- [{title}]({name})" for name, title in titles.items())])
    text = (ROOT / path).read_text()
    if path.endswith(".md"):
        return text
    fence = "`" * (2 + max([1, *(len(run) for run in re.findall(r"`{3,}", text))]))
    language = LANGUAGES.get(PurePosixPath(path).suffix, "")
    return f"# {path}\n\n{fence}{language}\n{text.rstrip()}\n{fence}\n"
