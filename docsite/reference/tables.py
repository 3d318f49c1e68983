"""How do values become a table in Markdown?"""

from collections.abc import Iterable, Sequence


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, or nothing if it has no rows."""
    lines = [f"| {' | '.join(map(cell, row))} |" for row in rows]
    return (
        "\n".join([f"| {' | '.join(headings)} |", f"|{' --- |' * len(headings)}", *lines, ""])
        if lines
        else ""
    )


def cell(text: str) -> str:
    """A text in one cell: one line, without a bar that would end it."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    """A short text as code, or nothing."""
    return f"`{text}`" if text else ""
