"""How do models leave for a spreadsheet, so that none of their names is run there as a formula?"""

import csv
import io
from collections.abc import Callable, Iterator
from typing import Any

from modelkeeper.zoo.catalog.paging import Page

FIELDS = (
    "id name owner project task data tags metric value lower_is_better framework parameters bytes parent "
    "similarity hits created last_used pinned state licence fingerprint"
).split()
MOST = 100_000  # models of one table
LOT = 500
_ACTIVE = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%")  # with what a cell begins that spreadsheets run


def cell(value: Any) -> Any:
    """A value that no spreadsheet runs: text that looks like a formula gets an apostrophe in front."""
    if isinstance(value, tuple):
        value = ", ".join(map(str, value))
    if isinstance(value, str) and value.lstrip(" ").startswith(_ACTIVE):
        return f"'{value}"
    return "" if value is None else value


def table(ask: Callable[[str, int], Page]) -> Iterator[bytes]:
    """Records as CSV, lot by lot; `ask` is told the id after which to go on, and how many to give."""
    yield ",".join(FIELDS).encode() + b"\r\n"
    after = ""
    for _ in range(0, MOST, LOT):
        page = ask(after, LOT)
        lines = io.StringIO()
        writer = csv.writer(lines)
        writer.writerows([cell(getattr(record, name)) for name in FIELDS] for record in page.records)
        yield lines.getvalue().encode()
        if not page.more or not page.records:
            return
        after = page.records[-1].id
