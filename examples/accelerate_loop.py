"""A plain loop with accelerate that starts warm: two trainings on handwritten digits, the second is wider.

    python examples/accelerate_loop.py
    torchrun --nproc-per-node 2 examples/accelerate_loop.py --zoo zoo/      # on GPUs: accelerate launch

The keeper is asked before `prepare`, in every process; one of them asks for all. What is reported is the
model without its wrappers.
"""

import argparse
from collections.abc import Sequence

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from modelkeeper import ModelKeeperClient


def train(client: ModelKeeperClient, width: int, epochs: int, cpu: bool = True) -> str:
    """Train a network of some width; how it started, and how good it became."""
    torch.manual_seed(width)
    accelerator = Accelerator(cpu=cpu)
    digits, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    data = TensorDataset(digits.float() / 16, labels)
    model: nn.Module = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))
    run = client.start(model, {"data": "digits", "task": "classification"})  # before prepare

    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    batches = DataLoader(torch.utils.data.Subset(data, range(1200)), batch_size=32, shuffle=True)
    held_out = DataLoader(torch.utils.data.Subset(data, range(1200, len(data))), batch_size=64)
    model, optimizer, batches, held_out = accelerator.prepare(model, optimizer, batches, held_out)
    for epoch in range(epochs):
        for x, y in batches:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.cross_entropy(model(x), y))
            optimizer.step()
        with torch.no_grad():
            right = [accelerator.gather_for_metrics(model(x).argmax(1) == y) for x, y in held_out]
        accuracy = torch.cat(right).float().mean().item()
        run.report(accuracy=accuracy, step=epoch, model=accelerator.unwrap_model(model))
    run.finish()
    return f"width {width}: {'cold' if run.answer.cold else 'warm'}, accuracy {accuracy:.2f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Train twice."""
    options = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    options.add_argument("--zoo", default=":memory:")
    options.add_argument("--epochs", type=int, default=3)
    chosen = options.parse_args(arguments)
    with ModelKeeperClient(chosen.zoo) as client:
        for width in (32, 48):
            Accelerator(cpu=True).print(train(client, width, chosen.epochs))


if __name__ == "__main__":
    main()
