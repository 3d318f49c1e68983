# %% [markdown]
# # A warm start in ten lines
#
# A small network learns handwritten digits. Then a wider one is to learn the same, once from its initial values and once from the zoo, into
# which the first was registered. All it takes is a client, a query before the training and a registration after it.

# %%
import torch
from sklearn.datasets import load_digits
from torch import nn

from modelkeeper import ModelKeeperClient
from modelkeeper.policy.curves import Curve, Point

torch.manual_seed(0)
torch.set_num_threads(1)
digits = load_digits()
x = torch.tensor(digits.images[:, None] / 16, dtype=torch.float32)
y = torch.tensor(digits.target)
ALL = {"data": "digits", "task": "classification"}


def net(width):
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, stride=2, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 10),
    )


def accuracy(model):
    model.eval()
    with torch.no_grad():
        return (model(x[1200:]).argmax(1) == y[1200:]).float().mean().item()


def train(model, steps):
    """Any training; this one looks at how good the model is on the way."""
    optimizer, points = torch.optim.AdamW(model.parameters(), 0.01), [Point(0, 0.0, accuracy(model))]
    for step in range(1, steps + 1):
        model.train()
        chosen = torch.randint(1200, (64,))
        nn.functional.cross_entropy(model(x[chosen]), y[chosen]).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            points.append(Point(step, step / 100, accuracy(model)))
    return Curve(metric="accuracy", points=tuple(points))


# %% [markdown]
# ## The first training
#
# The zoo is empty: a cold start, which is an answer and no error.

# %%
client = ModelKeeperClient(":memory:")  # a folder to share; or nothing, then it is ~/.modelkeeper
small, answer = client.query_for_model(net(12), ALL)
first = train(small, 300)
record = client.register_model(small, ALL | {"accuracy": accuracy(small), "name": "small"})
answer

# %% [markdown]
# ## The second, twice
#
# The wider network computes from its first step what the small one had learned, since widening is exact.

# %%
wide, answer = client.query_for_model(net(20), ALL)
answer

# %%
torch.manual_seed(1)
cold = train(net(20), 300)
torch.manual_seed(1)
warm = train(wide, 300)
warm.plot({"cold": cold}, name="warm")

# %% [markdown]
# How many steps did each take to be as good as the small network was?

# %%
goal = first.points[-1].score - 0.005
{name: getattr(curve.reaches(goal), "step", None) for name, curve in {"warm": warm, "cold": cold}.items()}

# %%
assert answer.exact
assert warm.points[0].score > cold.points[0].score + 0.3
