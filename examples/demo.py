"""Does a warm start shorten training? See it on handwritten digits, in a minute or two: `make demo`.

First a zoo: a few small convolutional networks of different families, widths and depths are trained on
scikit-learn's digits and registered. Then a new network, which is none of them, is trained several times,
each time cold (from its own initial values) and warm (from what the zoo lends it) side by side: same seed,
same batches, same learning rate, same number of steps.

The images are split in three: networks learn from the first part; on the second it is measured how good the
parents are, which is all that the keeper is told of them; curves, table and plot are of the third, which
nobody has seen. All seeds are shown, none is chosen; the parents are the same for all of them.
"""

import argparse
import math
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from modelkeeper import ModelKeeperClient
from modelkeeper.warmstart.answer import Answer

TASK = {"data": "digits", "task": "classification"}
BATCH, RATE = 64, 0.05
MARGIN = 0.005  # about the standard error of an accuracy of 0.98 on 1,000 images
EVERY = 10  # steps between two looks at the test images


class Block(nn.Module):
    """Two convolutions around a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        """The sum, rectified."""
        inner = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(x + self.norm2(self.conv2(inner)))


class ResNet(nn.Module):
    """A stem, two stages of residual blocks, and a head."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.first = nn.Sequential(*[Block(width) for _ in range(blocks)])
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.second = nn.Sequential(*[Block(2 * width) for _ in range(blocks)])
        self.head = nn.Linear(2 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.first(torch.relu(self.norm(self.stem(x))))
        x = self.second(torch.relu(self.down(x)))
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


def plain(width: int, layers: int) -> nn.Sequential:
    """The same without shortcuts."""

    def stage(before: int, after: int, stride: int) -> Iterator[nn.Module]:
        for number in range(layers):
            first = number == 0
            yield nn.Conv2d(before if first else after, after, 3, stride if first else 1, 1, bias=False)
            yield nn.BatchNorm2d(after)
            yield nn.ReLU()

    body = [*stage(1, width, 1), *stage(width, 2 * width, 2)]
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 10))


PARENTS: dict[str, Callable[[], nn.Module]] = {
    "plain-8x1": lambda: plain(8, 1),
    "plain-12x2": lambda: plain(12, 2),
    "resnet-6x1": lambda: ResNet(6, 1),
    "resnet-8x1": lambda: ResNet(8, 1),
    "resnet-12x2": lambda: ResNet(12, 2),
}
CHILD = "resnet-16x3"


def child() -> nn.Module:
    """The new network: wider and deeper than every parent."""
    return ResNet(16, 3)


@dataclass(frozen=True)
class Part:
    """Images and their classes."""

    images: Tensor
    classes: Tensor


def digits() -> tuple[Part, Part, Part]:
    """To learn from, to measure parents by, and to judge by: 500, 297 and 1,000 images."""
    images, classes = load_digits(return_X_y=True)
    first, rest, first_classes, rest_classes = train_test_split(
        images, classes, train_size=500, random_state=0, stratify=classes
    )
    second, third, second_classes, third_classes = train_test_split(
        rest, rest_classes, test_size=1000, random_state=0, stratify=rest_classes
    )

    def part(pixels: Any, labels: Any) -> Part:
        shaped = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8)
        return Part((shaped - 4.88) / 6.02, torch.tensor(labels))

    return part(first, first_classes), part(second, second_classes), part(third, third_classes)


def accuracy(model: nn.Module, part: Part) -> float:
    """The share of images that are told right."""
    model.eval()
    with torch.inference_mode():
        return float((model(part.images).argmax(1) == part.classes).float().mean())


@dataclass
class Run:
    """A training under way, and its accuracy on the test images at the steps looked at."""

    model: nn.Module
    steps: int
    seed: int
    at: list[int] = field(default_factory=list)
    curve: list[float] = field(default_factory=list)

    def train(self, learn: Part, test: Part | None = None) -> Iterator[int]:
        """Train, one step for each value asked for: SGD with a cosine schedule."""
        optimizer = torch.optim.SGD(
            self.model.parameters(), RATE, momentum=0.9, nesterov=True, weight_decay=5e-4
        )
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, self.steps))
        batches = torch.Generator().manual_seed(self.seed)
        self._look(test, 0)
        for step in range(1, self.steps + 1):
            chosen = torch.randint(len(learn.classes), (BATCH,), generator=batches)
            self.model.train()
            loss = cross_entropy(self.model(learn.images[chosen]), learn.classes[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            if step % EVERY == 0 or step == self.steps:
                self._look(test, step)
            yield step

    def _look(self, test: Part | None, step: int) -> None:
        if test is not None:
            self.at.append(step)
            self.curve.append(accuracy(self.model, test))

    @property
    def best(self) -> float:
        """The highest accuracy on the way."""
        return max(self.curve)

    def steps_to(self, target: float) -> int | None:
        """The first step at which it was as good as this; None: never."""
        return next((step for step, value in zip(self.at, self.curve, strict=True) if value >= target), None)


@dataclass(frozen=True)
class Race:
    """One seed: the same network trained cold and warm."""

    cold: Run
    warm: Run
    answer: Answer


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the zoo, race, report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5, help="how often the new network is trained, each way")
    parser.add_argument("--steps", type=int, default=240, help="of each training of the new network")
    parser.add_argument("--parent-steps", type=int, default=240, help="of each training of a parent")
    parser.add_argument("--zoo", help="the folder of the zoo; default: one that is gone afterwards")
    parser.add_argument("--plot", type=Path, default=Path("demo.png"), help="where the plot is written")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)  # the networks are so small that threads would wait for each other
    console = Console() if Console().is_terminal else Console(width=120)
    with (
        tempfile.TemporaryDirectory() as scratch,
        ModelKeeperClient(chosen.zoo or scratch, on_error="raise") as client,
    ):
        learn, measure, test = digits()
        fill(client, learn, measure, chosen.parent_steps, console)
        races = race(client, learn, test, chosen.seeds, chosen.steps, console)
    console.print(f"\n[bold]What the keeper said[/bold] of {CHILD} (seed 0):\n")
    console.print(races[0].answer)
    console.print()
    console.print(table(races))
    console.print(verdict(races))
    plot(races, chosen.plot)
    console.print(f"Plot: {chosen.plot}")


def fill(client: ModelKeeperClient, learn: Part, measure: Part, steps: int, console: Console) -> None:
    """Train the parents, and register each with how good it became."""
    console.print(f"[bold]The zoo[/bold]: {len(PARENTS)} networks, {steps} steps each")
    for number, (name, make) in enumerate(PARENTS.items()):
        torch.manual_seed(1000 + number)
        run = Run(make(), steps, seed=1000 + number)
        with console.status(f"training {name}"):
            for _ in run.train(learn):
                pass
        found = accuracy(run.model, measure)
        client.register_model(run.model, {**TASK, "accuracy": found, "name": name})
        console.print(f"  {name:<12} accuracy {found:.3f} on the images it is measured by", highlight=False)


def race(
    client: ModelKeeperClient, learn: Part, test: Part, seeds: int, steps: int, console: Console
) -> list[Race]:
    """Train the new network cold and warm for each seed, side by side."""
    races: list[Race] = []
    console.print(
        f"\n[bold]The race[/bold]: {CHILD}, {steps} steps, cold and warm side by side, {seeds} seeds"
    )
    with Live(console=console, refresh_per_second=8, transient=True) as live:
        for seed in range(seeds):
            models = []
            for _ in range(2):
                torch.manual_seed(seed)
                models.append(child())
            warmed, answer = client.query_for_model(models[1], {**TASK})
            one = Race(Run(models[0], steps, seed), Run(warmed, steps, seed), answer)
            races.append(one)
            for step, _ in zip(one.cold.train(learn, test), one.warm.train(learn, test), strict=True):
                if live.is_started and console.is_terminal and step % EVERY == 0:
                    live.update(_progress(races, seeds, step, steps))
            console.print(
                f"  seed {seed}: cold {one.cold.curve[0]:.3f} → {one.cold.curve[-1]:.3f}, warm "
                f"{one.warm.curve[0]:.3f} → {one.warm.curve[-1]:.3f}",
                highlight=False,
            )
    return races


def _progress(races: list[Race], seeds: int, step: int, steps: int) -> Table:
    grid = Table.grid(padding=(0, 2))
    for name, run in (("cold", races[-1].cold), ("warm", races[-1].warm)):
        bar = ProgressBar(total=1.0, completed=run.curve[-1], width=40)
        grid.add_row(
            f"  seed {len(races) - 1} of {seeds}",
            name,
            f"step {step:>4}/{steps}",
            bar,
            f"{run.curve[-1]:.3f}",
        )
    return grid


def table(races: list[Race]) -> Table:
    """Every seed, and mean and spread (standard deviation) over them."""
    grid = Table(header_style="bold", title="accuracy on images that nobody has seen", title_justify="left")
    headings = ["seed", "parent", "cold's\nbest"]
    for what in ("start", "end", "steps to\ncold's best", f"steps to\n{MARGIN} below it"):
        headings += [f"{what}\n{way}" for way in ("cold", "warm")]
    for heading in headings:
        named = heading == "parent"
        grid.add_column(heading, justify="left" if named else "right", min_width=11 if named else None)
    rows = [_row(each) for each in races]
    for seed, (each, row) in enumerate(zip(races, rows, strict=True)):
        late = [each.warm.steps_to(target) is None for target in _targets(each)]
        cells = [f"{value:.3f}" if n < 5 else f"{value:.0f}" for n, value in enumerate(row)]
        for n, never in zip((6, 8), late, strict=True):
            cells[n] = f"> {cells[n]}" if never else cells[n]
        grid.add_row(str(seed), each.answer.parent_name or "(cold)", *cells)
    grid.add_section()
    for name, of in (("mean", statistics.fmean), ("spread", _spread)):
        summed = [of(column) for column in zip(*rows, strict=True)]
        grid.add_row(name, "", *[f"{v:.3f}" if n < 5 else f"{v:.0f}" for n, v in enumerate(summed)])
    return grid


def _targets(each: Race) -> tuple[float, float]:
    """The best of the cold run, and what 1,000 images can hardly tell from it."""
    return each.cold.best, each.cold.best - MARGIN


def _row(each: Race) -> list[float]:
    """The target, starts, ends, and steps to the targets (all of them if one was not reached)."""
    runs = each.cold, each.warm
    found = [each.cold.best, *(run.curve[0] for run in runs), *(run.curve[-1] for run in runs)]
    for target in _targets(each):
        found += [run.steps if (step := run.steps_to(target)) is None else step for run in runs]
    return found


def _spread(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def verdict(races: list[Race]) -> str:
    """The race in three sentences, whatever came out."""
    rows, number = [_row(each) for each in races], len(races)
    mean = [statistics.fmean(column) for column in zip(*rows, strict=True)]
    reached = [sum(each.warm.steps_to(_targets(each)[n]) is not None for each in races) for n in (0, 1)]
    gains = [100 * (row[4] - row[3]) for row in rows]
    error = _spread(gains) / math.sqrt(number)
    return (
        f"Warm runs came within {100 * MARGIN:g} points of the best of their cold run in {reached[1]} of "
        f"{number} seeds, after {mean[8]:.0f} steps on average where the cold runs took {mean[7]:.0f}; they "
        f"became as good as that best in {reached[0]} of {number}, after {mean[6]:.0f} steps, cold after "
        f"{mean[5]:.0f} (a run that never did counts with all its steps). At the end, warm differs by "
        f"{statistics.fmean(gains):+.2f} points of accuracy, with a standard error of {error:.2f}."
    )


def plot(races: list[Race], path: Path) -> None:
    """Mean and range of all seeds, cold and warm."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.6), dpi=100)
    for name, colour in (("cold", "tab:blue"), ("warm", "tab:orange")):
        curves = [getattr(each, name).curve for each in races]
        at = races[0].cold.at
        mean = [statistics.fmean(values) for values in zip(*curves, strict=True)]
        low, high = ([choose(values) for values in zip(*curves, strict=True)] for choose in (min, max))
        axes.fill_between(at, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.plot(at, mean, color=colour, label=f"{name}: mean and range of {len(races)} seeds")
    best = statistics.fmean(each.cold.best for each in races)
    axes.axhline(best, color="grey", linestyle=":", label=f"mean of the cold runs' best: {best:.3f}")
    floor = min(value for each in races for value in each.warm.curve)
    axes.set(
        xlabel="training steps",
        ylabel="accuracy on test images",
        ylim=(max(0.0, min(floor, 0.85) - 0.02), 1.0),
    )
    axes.set_title(f"{CHILD} on digits, parent {races[0].answer.parent_name or 'none'}", fontsize=10)
    axes.legend(loc="lower right", fontsize=8)
    axes.grid(alpha=0.3)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    pyplot.close(figure)


if __name__ == "__main__":
    main()
