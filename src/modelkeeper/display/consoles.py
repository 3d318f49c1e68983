"""How is something printed so that no text in it steers the terminal?

    clean_console().print(renderable)      colours of ours stay, what foreign text holds does not
    plain(text)                            a text without markup, for cells of tables

This is the edge: whatever a table was made of, it goes through here.
"""

from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderHook, RenderResult
from rich.control import Control
from rich.segment import Segment
from rich.text import Text

from modelkeeper.text import printable


def clean_console(**options: Any) -> Console:
    """A console that prints no letter of a text that would steer the terminal; its own colours stay."""
    console = Console(**options)
    console.push_render_hook(_Cleaning())
    return console


class _Cleaning(RenderHook):
    """Cleans whatever is printed."""

    def process_renderables(self, renderables: list[Any]) -> list[Any]:
        return [each if isinstance(each, Control) else _Cleaned(each) for each in renderables]


class _Cleaned:
    """Something to print, without what would steer the terminal."""

    def __init__(self, inner: RenderableType) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._inner, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def plain(text: str) -> Text:
    """Plain text: no markup, and nothing that would steer the terminal it lands on."""
    return Text(printable(text))
