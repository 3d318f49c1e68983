"""How does what a terminal shows look in a notebook? The same tables and sentences, as HTML.

as_html(report(answer))

All text in it is escaped, and cleaned as for a terminal.
"""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from modelkeeper.drawings import escaped

LONGEST = 20_000  # letters of a sentence


def as_html(shown: RenderableType) -> str:
    """Groups, tables and texts as HTML."""
    if isinstance(shown, Group):
        return "".join(as_html(part) for part in shown.renderables)
    if isinstance(shown, Table):
        return _table(shown)
    return f"<p>{_words(shown)}</p>"


def _table(shown: Table) -> str:
    sides = ["right" if column.justify == "right" else "left" for column in shown.columns]

    def row(tag: str, cells: list[RenderableType]) -> str:
        made = (
            f'<{tag} style="text-align:{side}">{_words(cell)}</{tag}>'
            for side, cell in zip(sides, cells, strict=True)
        )
        return f"<tr>{''.join(made)}</tr>"

    title = f'<caption style="text-align:left">{_words(shown.title)}</caption>' if shown.title else ""
    head = row("th", [column.header for column in shown.columns])
    body = [row("td", list(cells)) for cells in zip(*(column.cells for column in shown.columns), strict=True)]
    return f"<table>{title}<thead>{head}</thead><tbody>{''.join(body)}</tbody></table>"


def _words(shown: object) -> str:
    text = shown.plain if isinstance(shown, Text) else str(shown)
    return "<br>".join(escaped(line, LONGEST) for line in text.split("\n"))
