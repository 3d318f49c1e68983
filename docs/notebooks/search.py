# %% [markdown]
# # A search with the keeper
#
# Eight networks of several widths and depths are tried, one after the other, as a search does. Once each starts from its initial values;
# once each asks the zoo of those before it, and trains for as many steps as the answer advises.

# %%
import random

import torch
from sklearn.datasets import load_digits
from torch import nn

from modelkeeper import ModelKeeperClient
from modelkeeper.policy.curves import Curve, Point

torch.set_num_threads(1)
digits = load_digits()
x, y = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
STEPS = 300
trials = [(width, depth) for width in (16, 24, 32, 48) for depth in (1, 2)]
random.Random(0).shuffle(trials)


def net(width, depth):
    layers = [nn.Linear(64, width), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def train(model, steps):
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, steps)
    for _ in range(steps):
        chosen = torch.randint(1200, (64,))
        nn.functional.cross_entropy(model(x[chosen]), y[chosen]).backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    with torch.no_grad():
        return (model(x[1200:]).argmax(1) == y[1200:]).float().mean().item()


# %% [markdown]
# ## Cold

# %%
cold, spent = [Point(0, 0.0, 0.0)], 0
for number, trial in enumerate(trials):
    torch.manual_seed(number)
    score = train(net(*trial), STEPS)
    spent += STEPS
    cold.append(Point(spent, float(spent), max(score, cold[-1].score)))

# %% [markdown]
# ## Warm
#
# The only lines that differ are the query and the registration. What the advice says is followed.

# %%
client = ModelKeeperClient(":memory:")
about = {"data": "digits", "task": "classification"}
warm, spent, starts = [Point(0, 0.0, 0.0)], 0, []
for number, trial in enumerate(trials):
    torch.manual_seed(number)
    model, answer = client.query_for_model(net(*trial), about)
    steps = round(STEPS * answer.advice.schedule)
    score = train(model, steps)
    client.register_model(model, about | {"accuracy": score, "name": f"width {trial[0]}, depth {trial[1]}"})
    spent += steps
    warm.append(Point(spent, float(spent), max(score, warm[-1].score)))
    starts.append((answer.parent_name or "cold", answer.similarity or 0.0, steps, score))

# %%
for trial, (parent, similarity, steps, score) in zip(trials, starts, strict=True):
    print(f"{trial!s:9} from {parent:20} similarity {similarity:.2f}  {steps:3} steps  accuracy {score:.3f}")

# %% [markdown]
# The best network found, by the steps that were spent on all of them. One run of one search: other orders give other figures, and the
# [evaluation](../helps.md) says what was measured over many.

# %%
Curve(metric="best accuracy", points=tuple(warm)).plot(
    {"cold": Curve(metric="best accuracy", points=tuple(cold))}, name="warm"
)

# %% [markdown]
# Who started from whom:

# %%
oldest = client.coordinator.models()[-1]
lineage = client.coordinator.tree(oldest.id)
lineage

# %%
assert sum(start[2] for start in starts) < len(trials) * STEPS
assert starts[0][0] == "cold"
assert any(start[0] != "cold" for start in starts)
