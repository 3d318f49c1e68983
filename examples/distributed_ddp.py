"""Does a training in several processes start warm, as one, and is it registered once? In seconds.

    torchrun --nproc-per-node 2 examples/distributed_ddp.py        # two processes, one model
    python examples/distributed_ddp.py                             # the same script in one

A small network is trained and registered, then a wider one starts from it. Every process makes the same
calls; the keeper is asked once, and all of them have the same weights.
"""

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn

from modelkeeper import ModelKeeperClient

RANK, SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
META = {"data": "digits", "task": "classification"}
IMAGES, LABELS = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
HELD_OUT = 300


def train(client: ModelKeeperClient, width: int, epochs: int) -> None:
    """Train a network on this process's share of the images, and register it."""
    x, y = IMAGES[HELD_OUT + RANK :: SIZE].float() / 16, LABELS[HELD_OUT + RANK :: SIZE]
    model = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
    model.append(nn.Linear(width, 10))  # every process draws initial values of its own
    with client.training(model, META | {"name": f"digits-{width}"}) as run:  # on every rank, before the wrap
        wrapped = nn.parallel.DistributedDataParallel(model) if SIZE > 1 else model
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for epoch in range(epochs):
            optimizer.zero_grad()
            nn.functional.cross_entropy(wrapped(x), y).backward()
            optimizer.step()
            right = model(IMAGES[:HELD_OUT].float() / 16).argmax(1) == LABELS[:HELD_OUT]
            run.report(accuracy=right.float().mean().item(), step=epoch, model=model)
            if epoch == 0:
                print(f"rank {RANK}: width {width}, after one epoch {run.metrics['accuracy']:.3f}")
    start = "cold" if run.answer.cold else f"from {run.answer.parent_name}"
    name = run.record.name if run.record is not None else "nothing"
    print(f"rank {RANK}: {name} registered, at the end {run.metrics['accuracy']:.3f}, started {start}")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    options.add_argument("--zoo", default=os.path.join(tempfile.gettempdir(), "modelkeeper-digits"))
    chosen = options.parse_args()
    if SIZE > 1:
        dist.init_process_group("gloo")
    with ModelKeeperClient(chosen.zoo) as keeper:
        train(keeper, width=32, epochs=20)
        train(keeper, width=48, epochs=5)
    if SIZE > 1:
        dist.destroy_process_group()
