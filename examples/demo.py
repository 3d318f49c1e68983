"""Does a warm start save time? See it in a small search for the best network: `make demo`.

Eight small residual networks, in random order, learn handwritten digits (scikit-learn's; no download). Each
is trained in three ways: same initial values, same batches, and a learning rate that falls to zero.

    cold      as without a keeper: from its initial values, the whole schedule
    warm      it asks the zoo of the networks before it, and trains for as many steps as the answer advises
    cut       the control: from its initial values, for as few steps as warm. Could one just train shorter?

The first network finds an empty zoo: it starts cold on both sides, and counts on both. What the keeper takes
(finding parents, transforming weights, registering) counts for warm. What is imported once, of PyTorch and of
the keeper, counts for nobody; the keeper's is said below the table.

The images are split in three: networks learn from 500, each shifted by up to one pixel; on 297 others it is
measured how good they are, which is all that the keeper is told; accuracy is shown on 1,000 that nobody has
seen. Time is CPU seconds of the training alone, so that other programs hardly disturb it. One run is one
search: other seeds give other orders, splits and initial values, and other figures.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

try:
    import matplotlib
    import torch
    from digits_search import NETWORKS, STEPS, WAYS, Row, Search, acquaint
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    from modelkeeper import ModelKeeperClient
except ModuleNotFoundError as missing:
    sys.exit(
        f"The demo needs {missing.name}, which is not installed here. `make demo` sets up all that it needs; "
        'or, in an environment of your own: pip install -c constraints.txt ".[torch,evaluation]"'
    )

NOISE = 0.5  # points: about the standard error of an accuracy of 98 % on 1,000 images
COLOURS = {"cold": "tab:blue", "warm": "tab:orange", "cut": "tab:gray"}
NAMES = {"cold": "cold", "warm": "warm,\nas advised", "cut": "cold,\ncut as short"}


@dataclass(frozen=True)
class Summary:
    """What the search came to, over all networks."""

    networks: int
    seconds: dict[str, float]  # of CPU, by way
    keeper: float  # of them, what the keeper took; in those of warm
    steps: dict[str, int]
    accuracy: dict[str, float]  # mean over networks
    points: dict[str, float]  # of accuracy, that warm and cut differ from cold
    spread: dict[str, float]  # of these differences between networks: standard deviation

    @staticmethod
    def of(rows: Sequence[Row]) -> "Summary":
        """Add up."""

        def by_way(of: Callable[[str], Any]) -> dict[str, Any]:
            return {way: of(way) for way in WAYS}

        gaps = by_way(
            lambda way: [100 * (row.trained[way].accuracy - row.trained["cold"].accuracy) for row in rows]
        )
        return Summary(
            networks=len(rows),
            seconds=by_way(lambda way: sum(row.seconds(way) for row in rows)),
            keeper=sum(row.keeper for row in rows),
            steps=by_way(lambda way: sum(row.trained[way].steps for row in rows)),
            accuracy=by_way(lambda way: statistics.fmean(row.trained[way].accuracy for row in rows)),
            points={way: statistics.fmean(values) for way, values in gaps.items()},
            spread={way: statistics.stdev(values) if len(rows) > 1 else 0.0 for way, values in gaps.items()},
        )

    def compared(self, way: str) -> str:
        """Its accuracy against that of cold, in words."""
        gap = self.points[way]
        word = "equal within noise" if abs(gap) <= NOISE else "better" if gap > 0 else "worse"
        return f"{100 * self.accuracy[way]:.1f} %, {word} ({gap:+.2f} points; spread {self.spread[way]:.2f})"

    def __str__(self) -> str:
        seconds, steps = self.seconds, self.steps
        return (
            f"In this search of {self.networks} networks, the first counted, warm took {seconds['warm']:.1f} "
            f"CPU seconds ({self.keeper:.1f} of them the keeper's) where cold took {seconds['cold']:.1f}: "
            f"{less(seconds['cold'] / seconds['warm'])}; and {steps['warm']} steps where cold took "
            f"{steps['cold']}: {less(steps['cold'] / steps['warm'])}.\n"
            f"Mean accuracy: cold {100 * self.accuracy['cold']:.1f} %; warm {self.compared('warm')}; "
            f"cold cut as short {self.compared('cut')}.\n"
            f"Noise is taken as {NOISE} points, about what 1,000 images can tell apart. The spread is over "
            "networks, which share parents and so are no independent trials. Other seeds give other figures."
        )


def less(ratio: float) -> str:
    """How many times less, or more, in words."""
    return f"{ratio:.1f} times less" if ratio >= 1 else f"{1 / ratio:.1f} times more"


def table(rows: Sequence[Row]) -> Table:
    """What is known so far: a row a network."""
    grid = Table(
        header_style="bold", title="CPU seconds, steps, accuracy on unseen images", title_justify="left"
    )
    for heading in (
        "network",
        "warm from",
        *(f"{way}\n{what}" for what in ("s", "steps", "%") for way in WAYS),
    ):
        grid.add_column(heading, justify="left" if heading in ("network", "warm from") else "right")
    for row in rows:
        done = [row.trained.get(way) for way in WAYS]
        cells = [f"{row.seconds(way):.1f}" if way in row.trained else "" for way in WAYS]
        cells += [f"{each.steps}" if each else "" for each in done]
        cells += [f"{100 * each.accuracy:.1f}" if each else "" for each in done]
        grid.add_row(row.name, row.parent, *cells)
    if all(len(row.trained) == len(WAYS) for row in rows):
        total = Summary.of(rows)
        cells = [f"{total.seconds[way]:.1f}" for way in WAYS] + [f"{total.steps[way]}" for way in WAYS]
        grid.add_section()
        grid.add_row("all", "sum; mean", *cells, *(f"{100 * total.accuracy[way]:.1f}" for way in WAYS))
    return grid


def picture(rows: Sequence[Row], seed: int, path: Path) -> None:
    """Left the time of all networks, piece by piece; right the accuracy of each."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    total = Summary.of(rows)
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.8), dpi=100)
    for place, way in enumerate(WAYS):
        begin = 0.0
        for number, row in enumerate(rows):
            left.barh(place, row.seconds(way), left=begin, color=COLOURS[way], edgecolor="white")
            if row.seconds(way) > 0.06 * total.seconds["cold"]:
                left.text(begin + row.seconds(way) / 2, place, str(number + 1), ha="center", va="center")
            begin += row.seconds(way)
        left.text(begin, place, f" {begin:.1f} s\n {100 * total.accuracy[way]:.1f} %", va="center")
        values = [100 * row.trained[way].accuracy for row in rows]
        right.plot(
            range(1, len(rows) + 1), values, "o", color=COLOURS[way], label=NAMES[way].replace("\n", " ")
        )
        right.axhline(statistics.fmean(values), color=COLOURS[way], linestyle=":")
    left.set_yticks(range(len(WAYS)), [NAMES[way] for way in WAYS])
    left.invert_yaxis()
    left.set(xlabel="CPU seconds, the keeper's counted", xlim=(0, 1.2 * max(total.seconds.values())))
    left.set_title(f"Time of {len(rows)} networks, one after the other; mean accuracy", fontsize=10)
    right.set_xticks(range(1, len(rows) + 1), [f"{n}\n{row.name[7:]}" for n, row in enumerate(rows, 1)])
    right.set(
        xlabel="network (width x blocks), in the order of the search", ylabel="% of 1,000 unseen images"
    )
    right.set_title("Accuracy of each; dotted: mean", fontsize=10)
    figure.legend(*right.get_legend_handles_labels(), loc="lower center", ncols=len(WAYS), fontsize=8)
    figure.suptitle(
        f"A search on handwritten digits, with and without ModelKeeper (seed {seed})", fontsize=11
    )
    figure.tight_layout(rect=(0, 0.06, 1, 1))  # below it is the legend, which is to hide no point
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    pyplot.close(figure)


def as_json(rows: Sequence[Row], seed: int) -> str:
    """Everything that was measured."""
    networks = []
    for row in rows:
        ways = {way: {k: v for k, v in vars(row.trained[way]).items() if k != "weights"} for way in WAYS}
        networks.append({"name": row.name, "parent": row.parent, "keeper": row.keeper, **ways})
    return json.dumps({"seed": seed, "summary": asdict(Summary.of(rows)), "networks": networks}, indent=1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Search, report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="which order, split and initial values: 0, 1, 2 ..."
    )
    parser.add_argument("--out", type=Path, default=Path("demo.png"), help="where the picture goes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure into this file, too")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"of a cold training; default {STEPS}")
    parser.add_argument("--networks", type=int, default=len(NETWORKS), help="how many; default all eight")
    parser.add_argument("--processes", type=int, default=2, help="trainings at a time; default 2")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    console = Console() if Console().is_terminal else Console(width=120)
    with (
        tempfile.TemporaryDirectory() as zoo,
        ModelKeeperClient(zoo, on_error="raise") as client,
        Live(console=console, transient=True, auto_refresh=False) as live,
    ):
        once = acquaint(client)
        search = Search(client, chosen.steps, chosen.seed, chosen.networks)
        console.print(
            f"{len(search.rows)} networks, each cold, warm and cold cut as short; seed {chosen.seed}"
        )
        for row, way in search.run(chosen.processes):
            if console.is_terminal:
                live.update(table(search.rows), refresh=True)
            else:
                done, start = row.trained[way], f" from {row.parent}" if way == "warm" else ""
                console.print(f"  {way} {row.name}{start}: {done.steps} steps, {100 * done.accuracy:.1f} %")
    console.print(table(search.rows), str(Summary.of(search.rows)), sep="\n", highlight=False)
    console.print(f"Not counted: {once:.1f} CPU seconds of the keeper's imports, once a process.")
    picture(search.rows, chosen.seed, chosen.out)
    if chosen.json:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(as_json(search.rows, chosen.seed))
    console.print(f"Picture: {chosen.out}")


if __name__ == "__main__":
    main()
