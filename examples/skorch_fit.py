"""Does a warm start help a grid search of scikit-learn over skorch? On handwritten digits, in half a minute.

    python examples/skorch_fit.py

Three widths, three folds, cold and warm. Candidates of one fold start from each other; folds do not lend to
each other, or scores would be too good.
"""

import argparse
from collections.abc import Sequence

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from skorch import NeuralNetClassifier
from torch import Tensor, nn

from modelkeeper.integrations.skorch import WarmStart


class Network(nn.Module):
    """Two hidden layers."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        sizes = [nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)]
        self.layers = nn.Sequential(*sizes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.layers(images)
        return logits


def main(arguments: Sequence[str] | None = None) -> None:
    """Search twice."""
    options = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    options.add_argument("--zoo", default=":memory:", help="a folder, or the address of a service")
    options.add_argument("--epochs", type=int, default=3)
    options.add_argument("--folds", type=int, default=3)
    chosen = options.parse_args(arguments)
    images, labels = load_digits(return_X_y=True)
    images = images.astype("float32") / 16
    warm = WarmStart(chosen.zoo, {"data": "digits", "task": "classification"}, folds=True)
    for name, callbacks in (("cold", []), ("warm", [("warm", warm)])):
        torch.manual_seed(0)
        net = NeuralNetClassifier(
            Network, criterion=nn.CrossEntropyLoss, optimizer=torch.optim.Adam, lr=0.002
        )
        net.set_params(max_epochs=chosen.epochs, callbacks=callbacks, verbose=0)
        search = GridSearchCV(net, {"module__width": [24, 32, 48]}, cv=chosen.folds, refit=False)
        search.fit(images, labels)
        scores = search.cv_results_["mean_test_score"]
        print(f"{name}: " + ", ".join(f"{score:.3f}" for score in scores) + " for widths 24, 32, 48")


if __name__ == "__main__":
    main()
