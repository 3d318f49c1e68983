"""What do two parents bring that one does not? `make side-by-side`

The protocol, written before the first run. After one setting of one seed had been seen it was shortened,
since it took too long: fewer settings (wide ResNet, DenseNet, SE-ResNet and ShuffleNet were left out), fewer
looks, and 600 instead of 1,000 steps in (a). That setting was measured again.

A setting is a child and two parents that lie side by side in it (`transfer([a, b], child)`). All are small
networks of `benchmarks.training.networks`, trained on 4,000 pictures of Fashion-MNIST (14 by 14, batches of
32, SGD with momentum) and judged on all 10,000 test pictures. Three seeds: each has its own parents, its own
initial child and its own order of pictures, and the three arms share the last two.

    parents   trained from scratch, 1,000 steps, cosine from 0.1 to zero
    cold      the child from scratch
    one       from the better parent alone (as the test pictures say: if that errs, then for this arm)
    two       from both, the better one first

    start     the score before any training
    (b)       the score after 250 steps of cosine from 0.1, against cold after 1,000 of them
    (a)       steps at a constant rate of 0.03, judged by a running average of the weights, to 99 % of what
              cold has after its 1,000 steps of cosine (that is as high as its plateau at a constant rate,
              which takes two or three thousand steps: .852 and .851 in an earlier round). Who has not got
              there after 600 steps counts 600.

The settings `plain` are the question itself: parents of the same family, trained apart. The others are
doubts: a second parent that is clearly worse (60 steps), shallower, a descendant of the first (it began with
the first's weights and was trained for 1,000 steps more), or too wide to fit whole.

A difference is paired by setting and seed. Per setting it is said to be worse or better if it is more than
two standard errors away from zero, which come from the spread within settings, pooled over all of them. (One
setting with a wide spread hides the others: of starts and steps the errors by kind of setting say more.)

Goes on where it was stopped. Writes benchmarks/results/side_by_side.json and side_by_side.md.
"""

import argparse
import copy
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, cross_entropy

from benchmarks.training import data, networks
from modelkeeper import transfer

RESULTS = Path(__file__).parent / "results"
PARENTS = Path(__file__).parent / ".cache" / "side_by_side"  # their weights, to go on where it was stopped
SEEDS = (0, 1, 2)
PICTURES, BATCH, CLASSES = 4_000, 32, 10
STEPS, SHORT, SOON = 1_000, 250, 60  # of cosine: a whole schedule, after a warm start, hardly any
PEAK, CONSTANT, WARM_UP = 0.1, 0.03, 20
LOOKS = (0, 20, 40, 60, 100, 150, 200, 300, 400, 500, 600)
ENOUGH = 0.99
Record = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """A child and its two parents: a kind of network, and (width, depth) of each."""

    kind: str
    child: tuple[int, int]
    first: tuple[int, int]
    second: tuple[int, int]
    doubt: str = "plain"

    @property
    def name(self) -> str:
        """What a table calls it."""
        sizes = ["-".join(map(str, size)) for size in (self.child, self.first, self.second)]
        return f"{self.kind} {sizes[0]} ← {sizes[1]} + {sizes[2]}"


SETTINGS = (
    Setting("vgg", (16, 1), (8, 1), (8, 1)),
    Setting("vgg", (20, 1), (12, 1), (8, 1)),
    Setting("mobilenet", (16, 1), (8, 1), (8, 1)),
    Setting("mobilenet", (20, 1), (12, 1), (8, 1)),
    Setting("resnet", (16, 1), (8, 1), (8, 1)),
    Setting("preresnet", (16, 1), (8, 1), (8, 1)),
    Setting("vgg", (16, 1), (8, 1), (8, 1), "second worse"),
    Setting("resnet", (16, 1), (8, 1), (8, 1), "second worse"),
    Setting("vgg", (16, 2), (8, 2), (8, 1), "second shallower"),
    Setting("vgg", (16, 1), (8, 1), (8, 1), "second a descendant"),
    Setting("mobilenet", (16, 1), (8, 1), (8, 1), "second a descendant"),
    Setting("vgg", (12, 1), (8, 1), (8, 1), "second in part"),
    Setting("mobilenet", (12, 1), (8, 1), (8, 1), "second in part"),
)


# -- training -----------------------------------------------------------------------------------------


@cache
def pictures() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """To train on, and to judge by."""
    images, labels, tests, test_labels = data.images("fashion-mnist")

    def small(found: data.Array) -> Tensor:
        scaled = (torch.tensor(found)[:, None].float() / 255 - 0.286) / 0.353
        return avg_pool2d(scaled, 2).contiguous(memory_format=torch.channels_last)

    train = small(images[:PICTURES]), torch.tensor(labels[:PICTURES]).long()
    return *train, small(tests), torch.tensor(test_labels).long()


def score(model: nn.Module) -> float:
    """Of 10,000 pictures, how many are told right."""
    _, _, tests, labels = pictures()
    model.eval()
    with torch.inference_mode():
        guesses = torch.cat([model(piece).argmax(1) for piece in tests.split(500)])
    return (guesses == labels).double().mean().item()


def steps(model: nn.Module, rate: Callable[[int], float], seed: int, count: int) -> Iterator[int]:
    """Train a model in place, and say after each step how many there were."""
    images, labels, _, _ = pictures()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    generator = torch.Generator().manual_seed(seed)
    order = torch.empty(0, dtype=torch.long)
    for step in range(1, count + 1):
        if len(order) < BATCH:
            order = torch.randperm(len(images), generator=generator)
        chosen, order = order[:BATCH], order[BATCH:]
        optimizer.param_groups[0]["lr"] = rate(step) * min(1.0, step / WARM_UP)
        model.train()
        optimizer.zero_grad()
        torch.autograd.backward(cross_entropy(model(images[chosen]), labels[chosen]))
        optimizer.step()
        yield step


def annealed(model: nn.Module, seed: int, count: int) -> nn.Module:
    """The model after so many steps of cosine to zero."""
    for _ in steps(model, lambda step: PEAK * (1 + math.cos(math.pi * step / count)) / 2, seed, count):
        pass
    return model


def constant(model: nn.Module, seed: int, enough: float) -> list[float]:
    """The scores at LOOKS of the running average of its weights, until one is enough."""
    average = copy.deepcopy(model)
    held, trained = [
        [*each.parameters(), *(b for b in each.buffers() if b.is_floating_point())]
        for each in (average, model)
    ]
    scores = [score(average)]
    if scores[0] >= enough:
        return scores
    for step in steps(model, lambda step: CONSTANT, seed, LOOKS[-1]):
        with torch.no_grad():
            torch._foreach_lerp_(held, trained, 1 - min(0.98, step / (step + 9)))
        if step in LOOKS:
            scores.append(score(average))
            if scores[-1] >= enough:
                break
    return scores


# -- arms ---------------------------------------------------------------------------------------------


def build(kind: str, size: tuple[int, int], seed: int) -> nn.Module:
    """A network, newly initialised."""
    return networks.build({"kind": kind, "width": size[0], "depth": size[1]}, CLASSES, seed)


def parent(kind: str, size: tuple[int, int], seed: int, count: int, heir_of: int | None = None) -> nn.Module:
    """A trained parent; the same one whenever it is asked for. `heir_of`: the seed of whom it begins as."""
    model = build(kind, size, seed)
    file = PARENTS / f"{kind}-{size[0]}-{size[1]}-{seed}-{count}-{heir_of}.pt"
    if file.exists():
        model.load_state_dict(torch.load(file, weights_only=True))
        return model
    if heir_of is not None:
        model.load_state_dict(parent(kind, size, heir_of, count).state_dict())
    annealed(model, seed, count)
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), file)
    return model


def parents(setting: Setting, seed: int) -> list[nn.Module]:
    """Both parents, the better one first."""
    seeds = 100 + 10 * seed, 101 + 10 * seed
    heir_of = seeds[0] if setting.doubt == "second a descendant" else None
    count = SOON if setting.doubt == "second worse" else STEPS
    both = [
        parent(setting.kind, setting.first, seeds[0], STEPS),
        parent(setting.kind, setting.second, seeds[1], count, heir_of),
    ]
    return sorted(both, key=score, reverse=True)


def cold(setting: Setting, seed: int) -> Record:
    """The child from scratch."""
    end = score(annealed(build(setting.kind, setting.child, seed), seed, STEPS))
    curve = constant(build(setting.kind, setting.child, seed), seed, ENOUGH * end)
    return {"curve": curve, "steps": reached(curve, ENOUGH * end), "end": end}


def warm(setting: Setting, seed: int, lenders: list[nn.Module], enough: float) -> Record:
    """The child from one parent or both."""
    child = build(setting.kind, setting.child, seed)
    report = transfer(lenders, child, pictures()[0][:2])
    again = copy.deepcopy(child)
    curve = constant(child, seed, enough)
    end = score(annealed(again, seed, SHORT))
    found = {"start": curve[0], "curve": curve, "steps": reached(curve, enough), "end": end}
    return found | {"exact": report.exact, "doubts": list(report.plan.doubts)[:2]}


def reached(curve: list[float], enough: float) -> int:
    """After how many steps a curve is good enough; all of them, if never."""
    return next((step for step, found in zip(LOOKS, curve, strict=False) if found >= enough), LOOKS[-1])


def measure(setting: Setting, seed: int, known: dict[str, Record]) -> Record:
    """All arms of one setting and seed; `known` has those that were measured before."""
    begun = time.process_time()
    from_scratch = f"cold {setting.kind} {setting.child} {seed}"
    if from_scratch not in known:
        known[from_scratch] = cold(setting, seed)
    without = known[from_scratch]
    lenders, enough = parents(setting, seed), ENOUGH * without["end"]
    return {
        "setting": setting.name,
        "doubt": setting.doubt,
        "seed": seed,
        "scratch": from_scratch,
        "parents": [score(lender) for lender in lenders],
        "cold": without,
        "one": warm(setting, seed, lenders[:1], enough),
        "two": warm(setting, seed, lenders, enough),
        "seconds": time.process_time() - begun,
    }


# -- what was found -----------------------------------------------------------------------------------

# name -> how much better `two` is than another arm, in points of accuracy or in steps saved
GAINS: dict[str, Callable[[Record], float]] = {
    "start, against one": lambda run: 100 * (run["two"]["start"] - run["one"]["start"]),
    "end, against one": lambda run: 100 * (run["two"]["end"] - run["one"]["end"]),
    "end, against cold": lambda run: 100 * (run["two"]["end"] - run["cold"]["end"]),
    "steps saved, against one": lambda run: run["one"]["steps"] - run["two"]["steps"],
}


def spread(values: list[float], digits: int) -> str:
    """Mean ± standard deviation."""
    return f"{statistics.fmean(values):.{digits}f} ±{statistics.stdev(values):.{digits}f}"


def table(groups: dict[str, list[Record]]) -> list[str]:
    """One row for each setting: all arms, mean ± standard deviation over seeds."""
    lines = [
        "| child ← parents | | parents | start: one | two | steps to 99 %: cold | one | two "
        "| end: cold, 1,000 | one, 250 | two, 250 |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for runs in groups.values():
        cells = [runs[0]["setting"], runs[0]["doubt"] + (", exact" if runs[0]["two"]["exact"] else "")]
        cells.append(" + ".join(f"{statistics.fmean(run['parents'][n] for run in runs):.3f}" for n in (0, 1)))
        cells += [spread([run[arm]["start"] for run in runs], 3) for arm in ("one", "two")]
        cells += [
            f"{statistics.fmean(run[arm]['steps'] for run in runs):.0f}" for arm in ("cold", "one", "two")
        ]
        cells += [spread([run[arm]["end"] for run in runs], 3) for arm in ("cold", "one", "two")]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def gains(groups: dict[str, list[Record]]) -> tuple[list[str], list[str]]:
    """The paired differences, setting by setting, and a verdict for each of them."""
    lines = ["| child ← parents | | " + " | ".join(GAINS) + " |", "| --- | --- |" + " ---: |" * len(GAINS)]
    errors = {
        name: _pooled([[gain(run) for run in runs] for runs in groups.values()])
        for name, gain in GAINS.items()
    }
    worse: dict[str, list[str]] = {name: [] for name in GAINS}
    for runs in groups.values():
        cells = [runs[0]["setting"], runs[0]["doubt"]]
        for name, gain in GAINS.items():
            found, error = statistics.fmean(map(gain, runs)), errors[name] / math.sqrt(len(runs))
            sign = "worse" if found < -2 * error else "better" if found > 2 * error else ""
            worse[name] += [f"{runs[0]['setting']} ({runs[0]['doubt']})"] * (sign == "worse")
            cells.append(f"{found:+.2f} {sign}" if "steps" not in name else f"{found:+.0f} {sign}")
        lines.append("| " + " | ".join(cells) + " |")
    verdicts = []
    for wanted in dict.fromkeys(run["doubt"] for runs in groups.values() for run in runs):
        chosen = [run for runs in groups.values() for run in runs if run["doubt"] == wanted]
        for name, gain in GAINS.items():
            values = [gain(run) for run in chosen]
            error = statistics.stdev(values) / math.sqrt(len(values))
            better, lost = sum(value > 0 for value in values), sum(value < 0 for value in values)
            verdicts.append(
                f"{wanted}: {name}: {statistics.fmean(values):+.2f} ±{error:.2f} (standard error), "
                f"better in {better} and worse in {lost} of {len(values)}"
            )
    for name, settings in worse.items():
        verdicts.append(f"worse beyond noise, {name}: {', '.join(settings) or 'none'}")
    return lines, verdicts


def _pooled(groups: list[list[float]]) -> float:
    """The standard deviation within groups, pooled over all of them."""
    return math.sqrt(statistics.fmean(statistics.variance(values) for values in groups))


def report(records: list[Record]) -> str:
    """The whole page."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(f"{record['setting']} {record['doubt']}", []).append(record)
    groups = {name: runs for name, runs in groups.items() if len(runs) > 1}
    differences, verdicts = gains(groups)
    lines = ["# Two parents side by side", "", "Made by `make side-by-side`; its protocol stands there.", ""]
    lines += [
        "Accuracy on 10,000 test pictures of Fashion-MNIST, mean ± standard deviation over the seeds.",
        "",
    ]
    lines += [*table(groups), "", "## What two gain, paired by seed", ""]
    lines += [
        "Points of accuracy, or steps; mean over seeds; worse or better: beyond two standard errors.",
        "",
    ]
    lines += [*differences, "", "## Verdict", "", *(f"- {verdict}" for verdict in verdicts)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure what is not measured yet, setting by setting, and write the page."""
    options = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    options.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    file = RESULTS / "side_by_side.json"
    records: list[Record] = json.loads(file.read_text()) if file.exists() else []
    done = {(record["setting"], record["doubt"], record["seed"]) for record in records}
    known = {record["scratch"]: record["cold"] for record in records}
    for seed in chosen.seeds:
        for setting in SETTINGS:
            if (setting.name, setting.doubt, seed) in done:
                continue
            record = measure(setting, seed, known)
            records.append(record)
            file.write_text(json.dumps(records, indent=1) + "\n")
            shown = {
                arm: [record[arm]["steps"], round(record[arm]["end"], 4)] for arm in ("cold", "one", "two")
            }
            print(setting.name, setting.doubt, seed, shown, f"{record['seconds']:.0f} s", flush=True)
    page = report(records)
    (RESULTS / "side_by_side.md").write_text(page)
    print(page.partition("## Verdict")[2])


if __name__ == "__main__":
    main()
