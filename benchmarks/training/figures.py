"""The plots of the page, drawn from records alone."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from benchmarks.training.arms import graph_of, similarity
from benchmarks.training.measures import Outcome, Record
from benchmarks.training.run import records
from benchmarks.training.workloads import WORKLOADS, Job
from benchmarks.training.zoo import Trained

mpl.use("Agg")
SHARES = np.linspace(0, 1, 41)
COLOURS = {
    "scratch": "#777777",
    "keeper": "#0b6e4f",
    "calibrated": "#7cb518",
    "paper": "#c8553d",
    "copy": "#3d5a80",
}
NAMES = {
    "scratch": "from scratch",
    "keeper": "ModelKeeper",
    "calibrated": "calibrated",
    "paper": "paper's operators",
    "copy": "name and shape",
}


def draw(
    by_workload: dict[str, dict[str, list[Outcome]]], found: dict[str, list[Record]], folder: Path, out: Path
) -> None:
    """All of them, as small PNG files."""
    out.mkdir(parents=True, exist_ok=True)
    _save(_speedups(by_workload), out / "evaluation-speedups.png")
    _save(_curves(by_workload), out / "evaluation-curves.png")
    _save(_similarity(found), out / "evaluation-similarity.png")
    for study, maker in (("parents", _parents), ("landscape", _landscape)):
        these = records(folder / f"study-{study}.jsonl")
        if these:
            _save(maker(these), out / f"evaluation-{study}.png")


def _figure(columns: int, width: float = 3.2) -> tuple[Any, Any]:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, columns, figsize=(width * columns, 2.8), squeeze=False)
    for each in axes[0]:
        each.spines[["top", "right"]].set_visible(False)
    return figure, axes[0]


def _save(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure.tight_layout()
    figure.savefig(path, dpi=90, metadata={"Software": None})
    plt.close(figure)


def _speedups(by_workload: dict[str, dict[str, list[Outcome]]]) -> Any:
    """One dot a job."""
    figure, axes = _figure(1, 7.5)
    chance = np.random.default_rng(0)
    arms = ("keeper", "calibrated", "paper", "copy")
    for place, by in enumerate(by_workload.values()):
        for number, arm in enumerate(arms):
            values = [each.speedup() for each in by.get(arm, [])]
            x = place + 0.26 * (number - 1) + chance.uniform(-0.06, 0.06, len(values))
            axes[0].scatter(
                x, values, s=14, color=COLOURS[arm], alpha=0.7, label=NAMES[arm] if not place else None
            )
            if values:
                axes[0].hlines(
                    np.median(values), place + 0.26 * (number - 1.4), place + 0.26 * (number - 0.6), "k"
                )
    axes[0].axhline(1, color="#999999", lw=0.8)
    axes[0].set_yscale("log")
    axes[0].set_yticks([0.5, 1, 2, 5, 10, 20, 50], ["0.5", "1", "2", "5", "10", "20", "50"])
    axes[0].set_xticks(range(len(by_workload)), [WORKLOADS[name].title for name in by_workload], fontsize=8)
    axes[0].set_ylabel("speed-up to 99 %, steps")
    axes[0].legend(fontsize=8, frameon=False)
    return figure


def _curves(by_workload: dict[str, dict[str, list[Outcome]]]) -> Any:
    """The average curve of the warm jobs of each workload, relative to the plateau from scratch."""
    figure, axes = _figure(max(1, len(by_workload)))
    for axis, (name, by) in zip(axes, by_workload.items(), strict=False):
        for arm, these in by.items():
            warm = [each for each in these if each.record["parent"] is not None]
            if not warm:
                continue
            axis.plot(
                SHARES, _average([(e.record, e.scratch) for e in warm]), color=COLOURS[arm], label=NAMES[arm]
            )
        cold = [each.scratch for each in by.get("keeper", []) if each.record["parent"] is not None]
        if cold:
            average = _average([(each, each) for each in cold])
            axis.plot(SHARES, average, color=COLOURS["scratch"], label=NAMES["scratch"])
        axis.set_ylim(0.85, 1.03)
        axis.axhline(0.99, color="#999999", lw=0.6, ls=":")
        axis.set_title(WORKLOADS[name].title, fontsize=9)
        axis.set_xlabel("share of the budget", fontsize=8)
    axes[0].set_ylabel("score / plateau", fontsize=8)
    axes[0].legend(fontsize=7, frameon=False)
    return figure


def _average(pairs: list[tuple[Record, Record]]) -> Any:
    """Curves over the budget of their runs from scratch, relative to the best score of those."""
    lines = [
        np.interp(SHARES * scratch["steps"][-1], record["steps"], record["scores"]) / max(scratch["scores"])
        for record, scratch in pairs
    ]
    return np.mean(lines, 0)


def _similarity(found: dict[str, list[Record]]) -> Any:
    """The paper's figure 2: how similar are the nearest models of a zoo?"""
    figure, axes = _figure(1, 4.5)
    for name, these in found.items():
        jobs = {(e["seed"], e["job"]): Job(e["spec"], e["data"]) for e in these if e["arm"] == "scratch"}
        for rank, style in ((1, "-"), (5, ":")):
            values = []
            for (seed, number), job in jobs.items():
                others = [o for (s, n), o in jobs.items() if s == seed and n != number]
                found_here = sorted(
                    (similarity(Trained(0, o, 0.0, Path()), graph_of(job)) for o in others), reverse=True
                )
                if len(found_here) >= rank:
                    values.append(found_here[rank - 1])
            values.sort()
            axes[0].plot(
                values,
                np.arange(1, len(values) + 1) / max(1, len(values)),
                style,
                label=f"{WORKLOADS[name].title}, top {rank}",
            )
    axes[0].set_xlabel("similarity to the most (the fifth most) similar other model", fontsize=8)
    axes[0].set_ylabel("share of the models", fontsize=8)
    axes[0].legend(fontsize=6, frameon=False)
    return figure


def _parents(these: list[Record]) -> Any:
    """The paper's figure 3: one job, several parents."""
    jobs = sorted({(e["workload"], e["seed"], e["job"]) for e in these})[:3]
    figure, axes = _figure(len(jobs))
    for axis, key in zip(axes, jobs, strict=True):
        mine = [e for e in these if (e["workload"], e["seed"], e["job"]) == key]
        for each in sorted(mine, key=lambda e: e["similarity"]):
            cold = each["parent"] is None
            label = "from scratch" if cold else f"similarity {each['similarity']:.2f}, {each['score']:.3f}"
            axis.plot(each["steps"], each["scores"], color="#777777" if cold else None, label=label, lw=1)
        best = max((max(e["scores"]) for e in mine if e["parent"] is None), default=None)
        if best:
            axis.axhline(0.99 * best, color="#999999", lw=0.6, ls=":")
            axis.set_ylim(0.85 * best, 1.02 * best)
        axis.set_title(f"{key[0]}, seed {key[1]}, job {key[2]}", fontsize=8)
        axis.legend(fontsize=6, frameon=False)
    return figure


def _landscape(these: list[Record]) -> Any:
    """The paper's figure 4: how far is the solution, and how noisy are the gradients?"""
    figure, axes = _figure(2)
    for each in these:
        colour, style = COLOURS[each["arm"]], "-" if each["seed"] == 0 else "--"
        axes[0].plot(each["steps"], each["distance"], color=colour, ls=style, label=f"{NAMES[each['arm']]}")
        axes[1].plot(each["steps"], each["variance"], color=colour, ls=style)
    axes[0].set_ylabel("distance to where it ends", fontsize=8)
    axes[1].set_ylabel("variance of the gradient", fontsize=8)
    axes[1].set_yscale("log")
    for axis in axes:
        axis.set_xlabel("steps", fontsize=8)
    axes[0].legend(fontsize=7, frameon=False)
    return figure
