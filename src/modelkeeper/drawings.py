"""How do figures become pictures for a page or a notebook? SVG and HTML in which all text is escaped.

    drawing.save("diff.svg")                 what `plan.plot()`, `curve.plot()` and `lineage.plot()` give
    links(left, right, wires, ...)           two columns of boxes, and what goes from one to the other
    lines({"warm": [(0, 0.4), ...]}, ...)    curves
    rows([...])                              a tree, a row for each node, with lines in lanes
    table(headings, rows)                    a table for a notebook

Names in them are whatever somebody called a layer or a model. Colours can be seen on white and on black; no
script, no style sheet and nothing of another host is in them.
"""

import html
import math
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from modelkeeper.text import printable

INK, DIM, FAINT = "#6a7480", "#808890", "#80889066"
COLOURS = {
    "copied": "#2f9e6e",
    "widened": "#3f8fd6",
    "narrowed": "#c98a1b",
    "resized": "#8f7ad6",
    "joined": "#4aa5a5",
    "inserted": "#c2649a",
    "kept": "#8a8f98",
}
LINES = ("#3f8fd6", "#c98a1b", "#2f9e6e", "#c2649a", "#8f7ad6", "#4aa5a5")
FONT = 'font-family="system-ui, sans-serif"'
MOST_NAMED = 60  # boxes of a column that are tall enough for their names
WIDTH, BOX, GAP = 760, 280, 200  # pixels, of a picture of two columns
LONGEST = 38  # letters of a name in a box


_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # letters that XML has not


class Picture:
    """A picture: shown by a notebook, or saved as a file."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it into a file that browsers and documents show."""
        place = Path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(self.svg, encoding="utf-8")
        return place

    def _repr_svg_(self) -> str:
        return self.svg

    def __str__(self) -> str:
        return self.svg


class Box(NamedTuple):
    """A box of a column: its name, what stands beside it, and its colour."""

    name: str
    note: str = ""
    colour: str = INK


class Wire(NamedTuple):
    """From which box on the left to which on the right, in which colour."""

    left: int
    right: int
    colour: str = INK


class TreeRow(NamedTuple):
    """A node of a tree: its depth, its name, what stands behind that, and is it the one that is meant?"""

    depth: int
    name: str
    note: str = ""
    meant: bool = False


def escaped(text: str, longest: int = 200) -> str:
    """Any text as part of a picture."""
    cleaned = _NO_XML.sub("\ufffd", printable(str(text)))
    return html.escape(cleaned if len(cleaned) <= longest else cleaned[: longest - 1] + "…")


def links(
    titles: tuple[str, str], left: Sequence[Box], right: Sequence[Box], wires: Iterable[Wire], caption: str
) -> Picture:
    """Two columns of boxes in their order, and wires between them; of very many the names are hints alone."""
    most = max(len(left), len(right), 1)
    step = 20.0 if most <= MOST_NAMED else max(1.5, 1200 / most)
    top, second = 44.0, BOX + GAP
    parts = [
        _text(0, 14, titles[0], weight=True),
        _text(second, 14, titles[1], weight=True),
        _text(0, 32, caption, DIM),
    ]
    for wire in wires:
        y, z = (top + step * (at + 0.5) for at in (wire.left, wire.right))
        middle = BOX + GAP / 2
        path = f"M{BOX} {y:.1f}C{middle} {y:.1f} {middle} {z:.1f} {second} {z:.1f}"
        wide = min(2.0, step / 4)
        parts.append(
            f'<path d="{path}" fill="none" stroke="{wire.colour}" stroke-width="{wide:.2f}" opacity="0.8"/>'
        )
    for x, boxes in ((0, left), (second, right)):
        for number, box in enumerate(boxes):
            parts.append(_box(x, top + step * number, step, box))
    return _drawing(WIDTH, top + step * most + 6, parts, caption)


def _box(x: float, y: float, step: float, box: Box) -> str:
    inner = max(1.0, step - (3 if step > 6 else 0.4))
    hint = f"<title>{escaped(f'{box.name} {box.note}')}</title>"
    shape = f'<rect x="{x}" y="{y:.1f}" width="{BOX}" height="{inner:.1f}" rx="{min(3.0, inner / 3):.1f}"'
    drawn = f'{shape} fill="{box.colour}" fill-opacity="0.22" stroke="{box.colour}" stroke-width="0.6"/>'
    if step >= 20:
        room = max(8, LONGEST - len(box.note[:24]))
        drawn += _text(x + 6, y + 12.5, box.name, INK, longest=room)
        drawn += _text(x + BOX - 6, y + 12.5, box.note, DIM, anchor="end", longest=24)
    return f"<g>{hint}{drawn}</g>"


def lines(
    curves: Mapping[str, Sequence[tuple[float, float]]], x: str, y: str, *, dashed: Iterable[str] = ()
) -> Picture:
    """Curves over one axis, each with its name where it ends."""
    points = [point for curve in curves.values() for point in curve if math.isfinite(point[1])]
    least, most = (min((p[1] for p in points), default=0.0), max((p[1] for p in points), default=1.0))
    first, last = (min((p[0] for p in points), default=0.0), max((p[0] for p in points), default=1.0))
    spread, length = (most - least) or abs(most) or 1.0, (last - first) or 1.0
    wide, tall, margin, top = 520.0, 240.0, 60.0, 30.0
    dash = set(dashed)

    def place(at: float, value: float) -> tuple[float, float]:
        return margin + wide * (at - first) / length, top + tall * (1 - (value - least) / spread)

    parts = []
    for value in _ticks(least, least + spread):
        level = place(first, value)[1]
        parts.append(
            f'<line x1="{margin}" y1="{level:.1f}" x2="{margin + wide}" y2="{level:.1f}" stroke="{FAINT}"/>'
        )
        parts.append(_text(margin - 6, level + 4, f"{value:.6g}", DIM, anchor="end"))
    below = top + tall + 16
    parts += [
        _text(place(at, least)[0], below, f"{at:.6g}", DIM, anchor="middle")
        for at in _ticks(first, first + length)
    ]
    parts.append(_text(margin + wide / 2, top + tall + 34, x, DIM, anchor="middle"))
    parts.append(_text(0, 10, y, DIM))
    for number, (name, curve) in enumerate(curves.items()):
        colour = LINES[number % len(LINES)]
        kept = [place(*point) for point in curve if math.isfinite(point[1])]
        if not kept:
            continue
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in kept)
        style = ' stroke-dasharray="6 4"' if name in dash else ""
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{style}/>')
        if len(kept) == 1:
            parts.append(f'<circle cx="{kept[0][0]:.1f}" cy="{kept[0][1]:.1f}" r="3" fill="{colour}"/>')
        down = top + 16 * number + 12
        parts.append(_text(margin + wide + 10, down, name, colour, longest=26))
    return _drawing(WIDTH, top + tall + 44, parts, f"{y} by {x}: {', '.join(curves)}")


def _ticks(least: float, most: float) -> list[float]:
    """Round numbers between two others, some five of them."""
    rough = (most - least) / 5
    if rough < sys.float_info.min:  # what is that near together has no round numbers between
        return [least]
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * times for times in (1, 2, 5, 10) if power * times >= rough)
    first, last = math.ceil(least / step - 1e-9), math.floor(most / step + 1e-9)
    return [step * number for number in range(first, last + 1)]


def rows(tree: Sequence[TreeRow], caption: str) -> Picture:
    """A tree, from the top down, each node below whom it comes from."""
    step, indent = 24.0, 22.0
    parts: list[str] = []
    open_at: dict[int, float] = {}
    for number, row in enumerate(tree):
        y, x = 18 + step * number, 8 + indent * row.depth
        above = open_at.get(row.depth - 1)
        if above is not None:
            bend = x - indent
            parts.append(f'<path d="M{bend:.1f} {above:.1f}V{y:.1f}H{x:.1f}" fill="none" stroke="{FAINT}"/>')
        open_at[row.depth] = y
        colour = LINES[0] if row.meant else INK
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{5 if row.meant else 4}" fill="{colour}"/>')
        parts.append(
            f'<text x="{x + 10:.1f}" y="{y + 4:.1f}" {FONT} font-size="12" fill="{INK}">'
            f'{escaped(row.name, 48)}<tspan fill="{DIM}" dx="8">{escaped(row.note, 60)}</tspan></text>'
        )
    return _drawing(WIDTH, 18 + step * len(tree), parts, caption)


def table(headings: Sequence[str], cells: Iterable[Sequence[object]], caption: str = "") -> str:
    """A table; numbers stand to the right."""
    head = "".join(f'<th style="text-align:left">{escaped(name)}</th>' for name in headings)
    body = "".join(f"<tr>{''.join(_cell(value) for value in row)}</tr>" for row in cells)
    said = f'<caption style="text-align:left">{escaped(caption, 2000)}</caption>' if caption else ""
    return f"<table>{said}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        shown = f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
        return f'<td style="text-align:right">{shown}</td>'
    return f'<td style="text-align:left">{escaped(str(value), 2000)}</td>'


def _text(
    x: float,
    y: float,
    text: str,
    colour: str = INK,
    *,
    anchor: str = "start",
    weight: bool = False,
    longest: int = 110,
) -> str:
    bold = ' font-weight="600"' if weight else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" {FONT} font-size="12" fill="{colour}" text-anchor="{anchor}"{bold}>'
        f"{escaped(text, longest)}</text>"
    )


def _drawing(width: float, height: float, parts: Iterable[str], said: str) -> Picture:
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escaped(said, 400)}">'
    return Picture(f"{head}{''.join(parts)}</svg>\n")
