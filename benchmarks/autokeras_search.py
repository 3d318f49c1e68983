"""What does AutoKeras' search gain when its trials start from each other? `make autokeras`

For each seed the same search runs twice, alone and with the keeper: AutoKeras' random search, so that both
train the same networks in the same order, from the same initial values, on the same images, for as many
epochs. The space: one or two blocks of one or two convolutions (3 x 3; 8, 16 or 32 filters each), then
flattened, averaged or the maximum taken; Adam with AutoKeras' default learning rate. The zoo is empty when a
search begins.

Told of each search: the best validation accuracy after so many trials, the mean of all trials, the accuracy
of the best trial's model on images that no trial has seen, and seconds of one processor: of the whole search
and, of these, in the keeper. AutoKeras' last training of the best network on all images is left out: it costs
both the same. Writes benchmarks/results/autokeras.json and autokeras.md.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from statistics import mean, median
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import autokeras as ak
import keras
import keras_tuner
import tensorflow as tf

from benchmarks.training import data
from modelkeeper import ModelKeeperClient
from modelkeeper.integrations.keras import WarmStart

RESULTS = Path(__file__).parent / "results"
RATE = 1e-3
AFTER = (1, 3, 6, 9, 12)  # trials after which the best so far is told


class TimedClient(ModelKeeperClient):
    """A client that counts the seconds that it takes."""

    seconds = 0.0

    def query_for_model(self, *args: Any, **options: Any) -> Any:
        """As the client does."""
        begun = time.process_time()
        try:
            return super().query_for_model(*args, **options)
        finally:
            self.seconds += time.process_time() - begun

    def register_model(self, *args: Any, **options: Any) -> Any:
        """As the client does."""
        begun = time.process_time()
        try:
            return super().register_model(*args, **options)
        finally:
            self.seconds += time.process_time() - begun


def images(name: str, folder: Path | None, count: int) -> dict[str, Any]:
    """Images to train on, to validate on (half as many) and to test on."""
    train, labels, test, test_labels = data.images(name, folder)
    half = count // 2
    return {
        "train": (train[:count, ..., None] / 255.0, labels[:count]),
        "validation": (train[count : count + half, ..., None] / 255.0, labels[count : count + half]),
        "test": (test[..., None] / 255.0, test_labels),
    }


def search_space() -> tuple[Any, Any, Any]:
    """Input, output, and what is not searched for."""
    choice = keras_tuner.engine.hyperparameters.Choice
    source = ak.ImageInput()
    block = ak.ConvBlock(
        kernel_size=3,
        num_blocks=choice("num_blocks", [1, 2]),
        num_layers=choice("num_layers", [1, 2]),
        filters=choice("filters", [8, 16, 32]),
        max_pooling=True,
        separable=False,
        dropout=0.0,
    )
    head = ak.ClassificationHead(dropout=0.0)
    fixed = keras_tuner.HyperParameters()
    fixed.Fixed("optimizer", "adam")
    fixed.Fixed("learning_rate", RATE)
    return source, head(block(source)), fixed


def search(parts: dict[str, Any], tuner: Any, seed: int, trials: int, epochs: int) -> dict[str, Any]:
    """One search: what each trial reached, what its best model is worth, and what it took."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    source, output, fixed = search_space()
    with tempfile.TemporaryDirectory() as folder:
        auto = ak.AutoModel(
            source,
            output,
            tuner=tuner,
            objective="val_accuracy",
            max_trials=trials,
            seed=seed,
            directory=folder,
            hyperparameters=fixed,
        )
        begun = time.process_time()
        # With an early stopping of one's own AutoKeras does not train the best network once more.
        patience = keras.callbacks.EarlyStopping(patience=epochs)
        x, y = parts["train"]
        auto.fit(x, y, epochs=epochs, validation_data=parts["validation"], callbacks=[patience], verbose=0)
        seconds = time.process_time() - begun
        found = list(auto.tuner.oracle.trials.values())
        test = auto.evaluate(*parts["test"], verbose=0)[1]
    return {
        "scores": [round(float(trial.score), 4) for trial in found],
        "networks": [trial.hyperparameters.values for trial in found],
        "test": round(float(test), 4),
        "seconds": round(seconds, 1),
    }


def both(parts: dict[str, Any], seed: int, trials: int, epochs: int) -> dict[str, Any]:
    """The same search alone and with the keeper."""
    alone = search(parts, "random", seed, trials, epochs)
    client = TimedClient(":memory:")
    warm = WarmStart(client, {"data": "images", "task": "classification"})
    kept = search(parts, warm.tuner("random"), seed, trials, epochs)
    kept["keeper_seconds"] = round(client.seconds, 1)
    kept["starts"] = [
        {"parent": answer.parent_name, "similarity": answer.similarity, "exact": answer.exact}
        for answer in warm.answers
    ]
    assert [each["networks"] for each in (alone, kept)] == [alone["networks"]] * 2, "the networks differ"
    return {"seed": seed, "alone": alone, "keeper": kept}


def figures(run: dict[str, Any]) -> dict[str, float]:
    """What the table tells of one search."""
    scores = run["scores"]
    best = {f"best of {number}": max(scores[:number]) for number in AFTER if number <= len(scores)}
    rest = {"mean of trials": mean(scores), "test of the best": run["test"], "seconds": run["seconds"]}
    return best | rest | {"of these in the keeper": run.get("keeper_seconds", 0.0)}


def table(runs: list[dict[str, Any]]) -> list[str]:
    """A row for each figure: median and range over seeds, and for how many seeds the keeper is ahead."""
    lines = ["| | alone | with the keeper | higher with it |", "| --- | ---: | ---: | ---: |"]
    columns = [[figures(run[arm]) for run in runs] for arm in ("alone", "keeper")]
    for name in columns[0][0]:
        cells, values = [], [[figure[name] for figure in column] for column in columns]
        for column in values:
            digits = 1 if name in ("seconds", "of these in the keeper") else 3
            low, middle, high = (
                f"{value:.{digits}f}" for value in (min(column), median(column), max(column))
            )
            cells.append(f"{middle} ({low}–{high})")
        ahead = sum(b > a for a, b in zip(*values, strict=True))
        lines.append(f"| {name} | {cells[0]} | {cells[1]} | {ahead} of {len(runs)} |")
    return lines


def warm_trials(runs: list[dict[str, Any]]) -> str:
    """How trials that started warm compare with the same networks that started cold."""
    exact: list[float] = []
    others: list[float] = []
    for run in runs:
        arms = zip(run["alone"]["scores"], run["keeper"]["scores"], run["keeper"]["starts"], strict=True)
        for alone, kept, start in arms:
            if start["parent"]:
                (exact if start["exact"] else others).append(kept - alone)
    trials = sum(len(run["alone"]["scores"]) for run in runs)
    parts = [f"{len(exact) + len(others)} of {trials} trials started warm."]
    for name, gains in (("exact", exact), ("not exact", others)):
        if gains:
            better = sum(gain > 0 for gain in gains)
            middle, low, high = (f"{value:+.3f}" for value in (median(gains), min(gains), max(gains)))
            parts.append(
                f"Where the transfer was {name}, {better} of {len(gains)} did better than the same network "
                f"from scratch; the median difference is {middle}, from {low} to {high}."
            )
    return " ".join(parts)


def page(setting: dict[str, Any], runs: list[dict[str, Any]]) -> str:
    """The results, for people."""
    told = "{trials} trials, {epochs} epochs of {images} images of {dataset}.".format(**setting)
    lines = ["# AutoKeras alone and with the keeper", "", "Made by `make autokeras`.", ""]
    lines += [f"{told} Accuracies, and seconds of one processor: median (range) over {len(runs)} seeds.", ""]
    return "\n".join([*lines, *table(runs), "", warm_trials(runs), ""])


def main() -> None:
    """Search, print and write."""
    options = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    options.add_argument("--dataset", choices=("fashion-mnist", "mnist"), default="fashion-mnist")
    options.add_argument("--data", type=Path, help="folder of its four files")
    options.add_argument("--images", type=int, default=4000, help="to train on; half as many to validate on")
    options.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options.add_argument("--trials", type=int, default=12)
    options.add_argument("--epochs", type=int, default=3)
    options.add_argument("--results", type=Path, default=RESULTS)
    chosen = options.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    parts, runs = images(chosen.dataset, chosen.data, chosen.images), []
    setting = {key: getattr(chosen, key) for key in ("dataset", "images", "trials", "epochs")} | {
        "rate": RATE
    }
    for seed in chosen.seeds:
        runs.append(both(parts, seed, chosen.trials, chosen.epochs))
        for arm in ("alone", "keeper"):
            print(seed, arm, runs[-1][arm]["scores"], runs[-1][arm]["seconds"], flush=True)
        chosen.results.mkdir(parents=True, exist_ok=True)
        (chosen.results / "autokeras.md").write_text(page(setting, runs))
        content = json.dumps({"setting": setting, "runs": runs}, indent=1) + "\n"
        (chosen.results / "autokeras.json").write_text(content)
    print(page(setting, runs))


if __name__ == "__main__":
    main()
