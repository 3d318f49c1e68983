"""The notebooks of the documentation run, and show what their pages promise."""

import pytest

from docsite import notebooks

PATHS = {path.stem: path for path in notebooks.paths()}


def test_there_are_three() -> None:
    assert set(PATHS) == {"inside_a_transfer", "search", "warm_start"}


@pytest.mark.parametrize("name", sorted(PATHS))
def test_it_runs_and_becomes_a_page(name: str) -> None:
    """Each ends with assertions of its own."""
    page = notebooks.page(PATHS[name])
    assert page.startswith("# ")
    assert "Traceback" not in page
    assert page.count("```python") >= 5
    assert '<div class="output">\n<svg' in page
    assert page.count("```") % 2 == 0
