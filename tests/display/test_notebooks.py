"""What a notebook shows: the same words as a terminal, as HTML."""

from rich.console import Group
from rich.table import Table
from rich.text import Text

from modelkeeper.display.consoles import plain
from modelkeeper.display.notebooks import as_html


def test_tables_and_sentences_become_html() -> None:
    table = Table(title="not <taken>")
    table.add_column("model")
    table.add_column("parameters", justify="right")
    table.add_row(plain("<i>net</i>"), "1,000")
    table.add_row(Text("two\nlines"), "7")
    shown = as_html(Group(plain("Why & how"), table))
    assert shown.startswith("<p>Why &amp; how</p><table>")
    assert "not &lt;taken&gt;" in shown
    assert (
        '<td style="text-align:left">&lt;i&gt;net&lt;/i&gt;</td><td style="text-align:right">1,000</td>'
        in shown
    )
    assert "two<br>lines" in shown
    assert shown.count("<tr>") == 3
