"""How do notebooks become pages? Each is run from its text, and shown with what it gave.

    run(path)           a notebook with its outputs, as nbformat has it; raises if a cell fails
    page(path)          the same as a page of the site
    python -m docsite.notebooks build/notebooks        all of them as .ipynb files, to open and change

They lie as text in docs/notebooks (jupytext, percent format). What a run gave is kept below build/, and used
again as long as neither the text nor the package has changed.
"""

import hashlib
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import jupytext  # type: ignore[import-untyped]
from nbclient import NotebookClient
from traitlets.config import Config

ROOT = Path(__file__).parent.parent
NOTEBOOKS = ROOT / "docs" / "notebooks"
KEPT = ROOT / "build" / "notebooks"
PATIENCE = 600  # seconds for a cell, on a busy machine
PICTURES = ("image/svg+xml", "text/html")


def paths() -> list[Path]:
    """All notebooks, as text."""
    return sorted(NOTEBOOKS.glob("*.py"))


def run(path: Path) -> Any:
    """A notebook with what its cells gave.

    Raises:
        CellExecutionError: A cell failed.
    """
    kept = KEPT / f"{path.stem}-{_state(path)}.ipynb"
    if kept.exists():
        return jupytext.read(kept)
    notebook = jupytext.read(path)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    with tempfile.TemporaryDirectory() as folder:  # of the sockets by which the kernel is spoken to
        spoken = Config({"ConnectionFileMixin": {"transport": "ipc", "ip": f"{folder}/kernel"}})
        NotebookClient(notebook, timeout=PATIENCE, kernel_name="python3", config=spoken).execute()
    KEPT.mkdir(parents=True, exist_ok=True)
    for old in KEPT.glob(f"{path.stem}-*.ipynb"):
        old.unlink(missing_ok=True)
    jupytext.write(notebook, kept)
    return notebook


def _state(path: Path) -> str:
    """What a run depends on: the text, and the package."""
    state = hashlib.sha256(path.read_bytes())
    for file in sorted((ROOT / "src" / "modelkeeper").rglob("*.py")):
        state.update(file.read_bytes())
    return state.hexdigest()[:16]


def page(path: Path) -> str:
    """A notebook as Markdown, run."""
    parts = []
    for cell in run(path).cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        elif cell.source.strip():
            parts.append(f"```python\n{cell.source}\n```")
            parts += [_shown(output) for output in cell.outputs]
    name = path.relative_to(ROOT).as_posix()
    parts.append(f"The text of this notebook is `{name}`; `make notebooks` writes it as an `.ipynb` file.")
    return "\n\n".join(part for part in parts if part) + "\n"


def _shown(output: Any) -> str:
    """One output: a picture or a table as it is, else text."""
    if output.output_type == "stream":
        return _fenced(output.text)
    data = output.get("data", {})
    for kind in PICTURES:
        if kind in data:
            drawn = re.sub(r"\n\s*\n", "\n", data[kind].strip())  # an empty line would end it
            return f'<div class="output">\n{drawn}\n</div>'
    return _fenced(data.get("text/plain", ""))


def _fenced(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```" if text.strip() else ""


def main(folder: str) -> None:
    """Write all of them as files that Jupyter opens."""
    for path in paths():
        place = Path(folder) / f"{path.stem}.ipynb"
        place.parent.mkdir(parents=True, exist_ok=True)
        jupytext.write(run(path), place)
        print(place)


if __name__ == "__main__":
    main(*sys.argv[1:])
