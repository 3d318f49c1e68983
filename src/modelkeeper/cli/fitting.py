"""How does a table of many columns fit a narrow terminal? Whole columns go, in an order that the table gives.

Squeezed, all of them would be a letter wide. What was left out is said below the table.
"""

from collections.abc import Collection, Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

_IDS = ("id", "model")  # to be copied
_MOST = 32  # cells of a column that count: longer text is wrapped
_AROUND = 3  # what rules and spaces take for each column, and 1 besides


class FittingTable:
    """A table that leaves out columns where it is wider than the console."""

    def __init__(self, headings: Sequence[str], least: Sequence[str], right: Collection[str] = ()) -> None:
        """No rows yet.

        Args:
            headings: Of the columns.
            least: Which of them may go, and in which order.
            right: Which of them are numbers, for the right side.
        """
        self._headings, self._right = headings, right
        self._least = [heading for heading in least if heading in headings]
        self._rows: list[Sequence[Text]] = []

    def add_row(self, *cells: Text) -> None:
        """Add a row, with a cell for each heading."""
        self._rows.append(cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        width = {
            heading: min(_MOST, max(Text(heading).cell_len, *(row[number].cell_len for row in self._rows), 0))
            for number, heading in enumerate(self._headings)
        }
        gone: list[str] = []
        for heading in self._least:
            kept = [width[name] + _AROUND for name in self._headings if name not in gone]
            if sum(kept) + 1 <= options.max_width:
                break
            gone.append(heading)
        table = Table(header_style="bold")
        for heading in self._headings:
            if heading not in gone:
                add_column(table, heading, right=heading in self._right)
        for row in self._rows:
            table.add_row(*(cell for name, cell in zip(self._headings, row, strict=True) if name not in gone))
        yield table
        if gone:
            yield Text(f"Left out, as the terminal is narrow: {', '.join(gone)}; --json has all.")


def add_column(table: Table, heading: str, *, right: bool = False) -> None:
    """Add a column whose ids and numbers stay in one line, and whose other text is never cut off."""
    whole = right or heading in _IDS
    table.add_column(heading, justify="right" if right else "left", no_wrap=whole, overflow="fold")
