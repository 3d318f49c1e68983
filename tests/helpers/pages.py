"""Pages of docs/integrations: what they show is run, and the lines to add are among what is run."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def run_page(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Run the blocks of a page that begins with the lines to add, and compare what they print."""
    text = (ROOT / page).read_text()
    first = re.search(r"^```py\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert first is not None
    lines, shown = [line for line in first[1].splitlines() if line.strip()], "".join(blocks)
    assert text.index(first[0]) < 80, "the page begins with the lines to add"
    assert len(lines) == 3
    missing = [
        line for line in lines if not re.search(rf"^\s*{re.escape(line.strip())}$", shown, re.MULTILINE)
    ]
    assert missing == [], "shown, but not run"
    space: dict[str, object] = {"__name__": "__main__"}
    for block in blocks:
        exec(compile(block, page, "exec"), space)
    assert capsys.readouterr().out.splitlines() == re.findall(r"# -> (.*)", shown)
