"""What does AutoKeras gain when its trials start from each other? Images, text or tables, a minute each.

    python examples/autokeras_search.py image         # scikit-learn's handwritten digits
    python examples/autokeras_search.py text          # which module of Python does a sentence describe?
    python examples/autokeras_search.py structured    # scikit-learn's wines

The same search runs twice, with the same seed: as it is, and with trials that start from what the trials
before them have learned. AutoKeras' random search gives both the same networks to train. In the end AutoKeras
trains the best network once more, on all data; that starts warm, too, but nothing measures it, so that it is
not registered.
"""

import argparse
import importlib
import inspect
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import autokeras as ak
import keras
import keras_tuner
import numpy as np
from sklearn.datasets import load_digits, load_wine
from sklearn.preprocessing import scale

from modelkeeper import ModelKeeperClient
from modelkeeper.integrations.keras import WarmStart

Task = tuple[Any, Any, Any, Any]  # inputs and outputs of the search space, examples, classes
PLAIN = {"kernel_size": 3, "max_pooling": True, "separable": False, "dropout": 0.0}


def widths(name: str, *choices: int) -> Any:
    """How wide a layer may be: far less than AutoKeras would try, to be quick."""
    return keras_tuner.engine.hyperparameters.Choice(name, list(choices))


def image() -> Task:
    """Digits, for one block of convolutions."""
    x, y = load_digits(return_X_y=True)
    source = ak.ImageInput()
    convolutions = ak.ConvBlock(num_blocks=1, filters=widths("filters", 8, 16, 32), **PLAIN)
    return source, ak.ClassificationHead(dropout=0.0)(convolutions(source)), x.reshape(-1, 8, 8, 1) / 16, y


def text() -> Task:
    """Sentences from docstrings, for an embedding and one block of convolutions."""
    sentences: list[str] = []
    classes: list[int] = []
    for number, name in enumerate(
        ("argparse", "_pydecimal", "inspect", "statistics", "subprocess", "unittest.mock")
    ):
        found = inspect.getsource(importlib.import_module(name))
        docstrings = " ".join(re.findall(r'"""(.*?)"""', found, re.DOTALL))
        whole = [" ".join(sentence.split()) for sentence in docstrings.split(". ")]
        sentences += [sentence for sentence in whole if sentence]
        classes += [number] * (len(sentences) - len(classes))
    source = ak.TextInput()
    embedding = ak.Embedding(max_features=501, embedding_dim=widths("embedding_dim", 16, 24, 32), dropout=0.0)
    convolutions = ak.ConvBlock(num_blocks=1, filters=widths("filters", 16, 24, 32), **PLAIN)
    head = ak.ClassificationHead(dropout=0.0)(ak.SpatialReduction()(convolutions(embedding(source))))
    return source, head, np.array(sentences), np.array(classes)


def structured() -> Task:
    """Wines, for a block of dense layers."""
    x, y = load_wine(return_X_y=True)
    source = ak.Input()
    dense = ak.DenseBlock(use_batchnorm=False, num_units=widths("num_units", 16, 32, 64), dropout=0.0)
    return source, ak.ClassificationHead(dropout=0.0)(dense(source)), scale(x), y


def search(make: Callable[[], Task], tuner: Any, chosen: argparse.Namespace) -> list[float]:
    """The accuracy of each trial of one search."""
    keras.utils.set_random_seed(1)
    keras.backend.clear_session()
    source, head, x, y = make()
    recipe = keras_tuner.HyperParameters()  # AutoKeras would search for it, too
    recipe.Fixed("optimizer", "adam")
    recipe.Fixed("learning_rate", 0.01)
    order = np.random.default_rng(0).permutation(len(x))[: chosen.examples]
    with tempfile.TemporaryDirectory() as folder:
        auto = ak.AutoModel(
            source,
            head,
            tuner=tuner,
            objective="val_accuracy",
            max_trials=chosen.trials,
            directory=folder,
            seed=1,
            hyperparameters=recipe,
        )
        auto.fit(x[order], y[order], epochs=chosen.epochs, verbose=0)
        return [trial.score for trial in auto.tuner.oracle.trials.values()]


def main(arguments: Sequence[str] | None = None) -> None:
    """Search twice and compare."""
    kinds = {"image": image, "text": text, "structured": structured}
    options = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    options.add_argument("kind", choices=kinds)
    options.add_argument("--trials", type=int, default=4)
    options.add_argument("--epochs", type=int, default=3)
    options.add_argument("--examples", type=int, help="how many, to be quicker; default: all")
    chosen = options.parse_args(arguments)
    with ModelKeeperClient(":memory:") as client:
        warm = WarmStart(client, {"data": chosen.kind, "task": "classification"})
        alone = search(kinds[chosen.kind], "random", chosen)
        kept = search(kinds[chosen.kind], warm.tuner("random"), chosen)
    print(warm.summary())
    print("\nAccuracy on validation examples after each trial's epochs")
    print("trial   alone  with the keeper")
    for number, (without, with_it) in enumerate(zip(alone, kept, strict=True), 1):
        print(f"{number:>5} {without:>7.3f} {with_it:>16.3f}")
    print(f" best {max(alone):>7.3f} {max(kept):>16.3f}")


if __name__ == "__main__":
    main()
