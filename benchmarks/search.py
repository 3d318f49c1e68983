"""Does a search find as much in half the time when its trials start from each other?

    python -m benchmarks.search       resumable: what is in benchmarks/results/search.json is not run again

The protocol. It was made smaller twice for speed (fewer epochs, pictures and channels) before any score of a
search had been looked at; `half` and `stocked` were added when the other figures were known:

data      Fashion-MNIST: the first 1,000 training pictures, halved to 14 x 14; scored on 1,000 others
grid      36 small convolutional networks: 3 depths x 3 widths x with or without batch norm x 2 rates
training  Adam, batches of 32, a rate that falls to zero over the trial's own epochs (a cosine)
cold      each trial trains 8 epochs from scratch
warm      a zoo that is empty at first and grows while the search runs; a trial that starts warm trains by the
          advice of its answer (8 x `advice.schedule`, at least 1), one that starts cold trains 8
half      as warm, but a trial that starts warm trains half of the epochs, whatever the advice says
stocked   a zoo that holds what an earlier search has found (the 36, from scratch, 8 epochs, another seed, at
          a cost that is not counted) and stays as it is; trials train by the advice
short     a control: each trial trains 2 epochs from scratch, as long as most warm ones
ASHA      the same 36 in a random order, max_t 8, grace 1, factor 2; the rate falls over 8 epochs
          asha-cold; asha-warm: rungs compare warm and cold trials as they come; asha-time: the scheduler's
          clock is `TIME`, so that a warm trial joins at the rung that it need not train up to
truth     each of the 36 from scratch for 16 epochs, the mean of 2 seeds that no search uses
measured  epochs trained in all, seconds of `Tuner.fit` (other programs share the machine: epochs count), the
          best score, and Spearman's rank correlation of the trials' last scores with the truth; 3 seeds

Two workers of Ray, one thread each, processes used again (`reuse_actors`). A seed sets initial values and
order of batches, the same for cold and warm. Goal: half the epochs at no worse best, rank correlation no
worse.
"""

import argparse
import json
import math
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from scipy.stats import spearmanr
from torch import nn

from benchmarks.training.data import images
from modelkeeper import ModelKeeperClient
from modelkeeper.integrations.ray import TIME, WarmStart, report, warm_start

RESULT = Path(__file__).parent / "results" / "search.json"
META = {"data": "fashion-mnist", "task": "classification"}
EPOCHS, SHORT, LONG, BATCH = 8, 2, 16, 32
GRID = [
    {"number": number, "depth": depth, "width": width, "norm": norm, "rate": rate}
    for number, (depth, width, norm, rate) in enumerate(
        (depth, width, norm, rate)
        for depth in (1, 2, 3)
        for width in (8, 12, 16)
        for norm in (False, True)
        for rate in (0.002, 0.01)
    )
]
ARMS = ("cold", "warm", "half", "stocked", "short", "asha-cold", "asha-warm", "asha-time")
SIZE = 1000
SEEDS = (0, 1, 2)
TRUTHS = (100, 101)
EARLIER = 50  # the seed of the search whose models a zoo is stocked with


def network(config: dict[str, Any]) -> nn.Module:
    """A convolutional network; the grid says how deep and wide."""
    layers: list[nn.Module] = []
    channels = 1
    for number in range(config["depth"]):
        layers.append(nn.Conv2d(channels, config["width"], 3, padding=1))
        layers += [nn.BatchNorm2d(config["width"])] if config["norm"] else []
        layers += [nn.ReLU()] + ([nn.MaxPool2d(2)] if number < 2 else [])
        channels = config["width"]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(9 * channels, 10))


def halved() -> list[torch.Tensor]:
    """Pictures and labels to train on, and to score on."""
    read, classes, *_ = images("fashion-mnist")
    pictures = torch.tensor(np.asarray(read[: 2 * SIZE]), dtype=torch.float32).reshape(-1, 1, 28, 28)
    pictures = nn.functional.avg_pool2d(pictures / pictures.max(), 2)
    labels = torch.tensor(np.asarray(classes[: 2 * SIZE]), dtype=torch.long)
    return [pictures[:SIZE], labels[:SIZE], pictures[SIZE:], labels[SIZE:]]


def train(config: dict[str, Any], data: list[torch.Tensor]) -> None:
    """One trial."""
    torch.set_num_threads(1)
    seed = 1000 * config["seed"] + config["number"]
    torch.manual_seed(seed)
    order = torch.Generator().manual_seed(seed)
    x, y, x_val, y_val = data
    model = network(config)
    answer = warm_start(model) if config["warm"] else None
    epochs = config["epochs"]
    if answer is not None and not answer.cold and config["less"]:
        epochs = max(1, round(epochs * (config["less"] if config["less"] < 1 else answer.advice.schedule)))
    optimizer = torch.optim.Adam(model.parameters(), config["rate"])
    steps = math.ceil(len(x) / BATCH)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * steps)
    for _ in range(epochs):
        model.train()
        for chosen in torch.randperm(len(x), generator=order).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[chosen]), y[chosen]).backward()
            optimizer.step()
            falling.step()
        model.eval()
        with torch.no_grad():
            accuracy = float((model(x_val).argmax(1) == y_val).float().mean())
        if config["warm"]:
            report({"accuracy": accuracy}, model)
        else:
            tune.report({"accuracy": accuracy})
    if config["stock"]:
        ModelKeeperClient(config["stock"]).register_model(model, {**META, "accuracy": accuracy})


def search(
    arm: str, seed: int, data: list[torch.Tensor], epochs: int, stock: str = "", stocking: str = ""
) -> dict[str, Any]:
    """One search: the epochs and the last score of each trial, and the seconds of all.

    With `stock` trials start from a zoo that is there; `stocking` names one that they are registered in.
    """
    halving = arm.startswith("asha")
    order = np.random.default_rng(seed).permutation(len(GRID)) if halving else range(len(GRID))
    warm = arm in ("warm", "half", "stocked", "asha-warm", "asha-time")
    less = {"warm": 1.0, "stocked": 1.0, "half": 0.5}.get(arm, 0.0)  # 1: by the advice
    more = {"seed": seed, "warm": warm, "less": less, "epochs": epochs, "stock": stocking}
    space = {"trial": tune.grid_search([GRID[number] | more for number in order])}
    clock = TIME if arm == "asha-time" else "training_iteration"
    scheduler = (
        ASHAScheduler(time_attr=clock, max_t=EPOCHS, grace_period=1, reduction_factor=2) if halving else None
    )
    chosen = tune.TuneConfig(metric="accuracy", mode="max", scheduler=scheduler, reuse_actors=True)
    shared = ray.put(data)

    def trial(config: dict[str, Any]) -> None:
        train(config["trial"], ray.get(shared))

    with tempfile.TemporaryDirectory() as folder:
        kept = tune.RunConfig(storage_path=folder, verbose=0)
        began = time.perf_counter()
        if warm:
            keeper = WarmStart(stock or f"{folder}/zoo", META, register=not stock)
            tuner = keeper.tuner(trial, param_space=space, tune_config=chosen, run_config=kept)
        else:
            tuner = tune.Tuner(trial, param_space=space, tune_config=chosen, run_config=kept)
        results: Any = tuner.fit()
        seconds = time.perf_counter() - began
    if results.errors:
        raise SystemExit(f"{arm}, seed {seed}: {results.errors[0]}")
    trials = {
        str(result.config["trial"]["number"]): {
            "epochs": result.metrics["training_iteration"],
            "score": result.metrics["accuracy"],
            "start": (result.metrics.get("modelkeeper") or {}).get("start", "cold"),
        }
        for result in results
    }
    return {
        "seconds": round(seconds, 1),
        "trials": dict(sorted(trials.items(), key=lambda item: int(item[0]))),
    }


def table(runs: dict[str, Any]) -> list[dict[str, Any]]:
    """One line for each search."""
    truths = [runs[name]["trials"] for name in runs if name.startswith("truth")]
    truth = [float(np.mean([each[str(number)]["score"] for each in truths])) for number in range(len(GRID))]
    lines = []
    for name, run in runs.items():
        if not name.startswith("truth"):
            scores = [run["trials"][str(number)]["score"] for number in range(len(GRID))]
            best = int(np.argmax(scores))
            lines.append(
                {
                    "search": name,
                    "epochs": sum(trial["epochs"] for trial in run["trials"].values()),
                    "seconds": run["seconds"],
                    "warm": sum(trial["start"] == "warm" for trial in run["trials"].values()),
                    "best": max(scores),
                    "truth_of_best": round(truth[best], 4),
                    "correlation": round(float(spearmanr(scores, truth).statistic), 3),
                }
            )
    return lines


def summary(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The mean of the seeds of each arm, and the spread of what differs."""
    found = []
    for arm in ARMS:
        of_arm = [line for line in lines if line["search"].rpartition(" ")[0] == arm]
        if of_arm:
            mean = {
                key: float(np.mean([line[key] for line in of_arm])) for key in of_arm[0] if key != "search"
            }
            found.append(
                {"search": arm, "seeds": len(of_arm)}
                | {key: round(value, 4) for key, value in mean.items()}
                | {
                    "correlations": [line["correlation"] for line in of_arm],
                    "bests": [line["best"] for line in of_arm],
                }
            )
    return found


def show(lines: list[dict[str, Any]]) -> None:
    """Print them."""
    print("search        epochs  seconds  warm   best  its truth  correlation")
    for line in lines:
        print(
            f"{line['search']:<12} {line['epochs']:>7g} {line['seconds']:>8.1f} {line['warm']:>5g} "
            f"{line['best']:>6.4f} {line['truth_of_best']:>10.4f} {line['correlation']:>12.3f}"
        )


def main() -> None:
    """Run what is not there yet, and show all."""
    options = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    options.add_argument("--only-show", action="store_true", help="run nothing")
    chosen = options.parse_args()
    known = json.loads(RESULT.read_text())["runs"] if RESULT.exists() else {}
    truths = [(f"truth {seed}", "cold", seed, LONG) for seed in TRUTHS]
    wanted = truths[:1]
    for seed in SEEDS:
        wanted += [(f"{arm} {seed}", arm, seed, SHORT if arm == "short" else EPOCHS) for arm in ARMS]
    wanted += truths[1:]
    missing = [] if chosen.only_show else [each for each in wanted if each[0] not in known]
    if missing:
        os.environ |= {
            "RAY_AUTH_MODE": "disabled",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",
        }
        place = {"env_vars": {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}}
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=place)
        data = halved()
        stock = tempfile.mkdtemp()
        if any(arm == "stocked" for _, arm, _, _ in missing):
            search("cold", EARLIER, data, EPOCHS, stocking=stock)
        for name, arm, seed, epochs in missing:
            known[name] = search(arm, seed, data, epochs, stock if arm == "stocked" else "")
            ready = {each[0]: known[each[0]] for each in wanted if each[0] in known}
            lines = table(ready)
            figures = {"runs": ready, "searches": lines, "summary": summary(lines)}
            RESULT.write_text(json.dumps(figures, indent=1) + "\n")
            print(f"{name}: {known[name]['seconds']} s", flush=True)
        ray.shutdown()
    lines = table(known)
    show(lines)
    print()
    show(summary(lines))


if __name__ == "__main__":
    main()
