"""The plots of the page, drawn from records alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from benchmarks.training.sequence import CONSTANT
from benchmarks.training.steady import predictions, speedup, windows
from benchmarks.training.tables import TITLES, Results, bands

mpl.use("Agg")
COLOURS = {
    "keeper": "#0b6e4f",
    "one": "#222222",
    "calibrated": "#7cb518",
    "paper": "#c8553d",
    "copy": "#3d5a80",
}


def draw(results: Sequence[Results], long: Results | None, out: Path) -> None:
    """All of them, as small PNG files; those of what has not been run are removed."""
    out.mkdir(parents=True, exist_ok=True)
    made = {
        "speedups": _speedups(results),
        "long": _long(long) if long is not None and long.of("keeper") else None,
        "benefit": _benefit(results),
    }
    for name, figure in made.items():
        path = out / f"evaluation-{name}.png"
        if figure is None:
            path.unlink(missing_ok=True)
        else:
            _save(figure, path)


def _figure(width: float) -> tuple[Any, Any]:
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(width, 2.8))
    axis.spines[["top", "right"]].set_visible(False)
    return figure, axis


def _save(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure.tight_layout()
    figure.savefig(path, dpi=90, metadata={"Software": None})
    plt.close(figure)


def _speedups(results: Sequence[Results]) -> Any:
    """One dot a job; what may be chance is shaded."""
    figure, axis = _figure(8.5)
    chance, noise = np.random.default_rng(0), bands(results, CONSTANT)
    for place, each in enumerate(results):
        slower = noise[each.name].slower
        axis.fill_between([place - 0.45, place + 0.45], slower, 1 / slower, color="#dddddd", lw=0)
        for number, arm in enumerate(TITLES):
            values = [one.speedup() for one in each.outcomes(arm)]
            x = place + 0.18 * (number - 2) + chance.uniform(-0.05, 0.05, len(values))
            label = None if place else TITLES[arm]
            axis.scatter(x, values, s=12, color=COLOURS[arm], alpha=0.7, label=label)
    axis.axhline(1, color="#999999", lw=0.8)
    axis.set_yscale("log")
    axis.set_yticks([0.5, 1, 2, 5, 10, 20], ["0.5", "1", "2", "5", "10", "20"])
    axis.set_xticks(range(len(results)), [each.title for each in results], fontsize=7)
    axis.set_ylabel("fewer steps to 99 %", fontsize=8)
    axis.legend(fontsize=6, frameon=False, ncol=4, loc="upper center", bbox_to_anchor=(0.5, 1.15))
    return figure


def _long(long: Results) -> Any:
    """How the gain grows with the zoo."""
    figure, axis = _figure(6)
    these = long.outcomes("keeper")
    axis.scatter(range(len(these)), [each.speedup() for each in these], s=8, color="#0b6e4f", alpha=0.4)
    for first, part in windows(these):
        axis.hlines(speedup(part), first, first + len(part), color="#0b6e4f", lw=2)
    axis.axhline(1, color="#999999", lw=0.8)
    axis.set_yscale("log")
    axis.set_yticks([1, 2, 5, 10], ["1", "2", "5", "10"])
    axis.set_xlabel("models in the zoo (lines: sums over twenty jobs)", fontsize=8)
    axis.set_ylabel("fewer steps to 99 %", fontsize=8)
    return figure


def _benefit(results: Sequence[Results]) -> Any:
    """Expected against saved."""
    figure, axis = _figure(4)
    found = predictions(results)
    for seed, colour in ((0, "#c8553d"), (1, "#0b6e4f"), (2, "#3d5a80")):
        these = [each for each in found if each.seed == seed]
        x, y = [each.expected for each in these], [each.saved for each in these]
        axis.scatter(x, y, s=10, color=colour, label=f"seed {seed}")
    axis.plot([0, 1], [0, 1], color="#999999", lw=0.8)
    axis.set_ylim(-0.6, 1.05)
    axis.set_xlabel("expected benefit", fontsize=8)
    axis.set_ylabel("share of the steps saved", fontsize=8)
    axis.legend(fontsize=6, frameon=False)
    return figure
