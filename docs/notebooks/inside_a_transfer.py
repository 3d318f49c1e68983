# %% [markdown]
# # Inside a transfer
#
# What happens between two networks: each is described as a graph, the graphs are aligned layer by layer, a plan says what becomes of each
# tensor, and only then are numbers moved.

# %%
import torch
from torch import nn

import modelkeeper
from modelkeeper.frontends.torch import describe
from modelkeeper.matching import align
from modelkeeper.transform import make_plan

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x):
        return x + torch.relu(self.norm(self.conv(x)))


def resnet(width, blocks):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        *(Block(width) for _ in range(blocks)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 10),
    )


example = torch.randn(8, 3, 16, 16)
parent, child = resnet(8, 1), resnet(12, 2)

# %% [markdown]
# ## Graphs
#
# A graph is a model without its weights: layers in the order of the data, and what feeds them. It is all that a query sends to a coordinator.
# While it is made, it is inferred which axes must change width together: these are its *spaces*.

# %%
lender, borrower = describe(parent, example), describe(child, example)
borrower

# %%
for number, space in enumerate(borrower.spaces):
    tied = [
        tensor.name
        for layer in borrower.layers
        for tensor in layer.tensors
        if f"s{number}" in map(str, (axis.of for axis in tensor.axes))
    ]
    print(f"s{number}: {space.size} units, {'free' if space.free else 'pinned'}: {', '.join(tied)}")

# %% [markdown]
# ## Alignment
#
# Which layer of the parent could lend to which of the child, so that data flow is respected and as much as possible is worth lending?

# %%
alignment = align(lender, borrower)
alignment

# %% [markdown]
# ## Plan
#
# The plan says it for each tensor, before a number is moved: copied, widened, narrowed, inserted, kept. The block that the parent does not
# have is inserted so that it changes nothing: the gain of its norm is zero.

# %%
plan = make_plan(lender, borrower, alignment)
plan

# %%
plan.plot()

# %% [markdown]
# ## Exact growth
#
# The child contains the parent in every width and depth, so that it computes the same before it is trained.

# %%
report = modelkeeper.transfer(parent, child, example, verify=True)
print(f"exact: {report.exact}, largest difference: {report.difference:.1e}")

# %% [markdown]
# The other way, something must be given up: units that matter least are folded into their nearest ones. Such a start is approximate, and
# says why.

# %%
narrower = resnet(6, 1)
shrunk = modelkeeper.transfer(child, narrower, example, verify=True)
print(f"exact: {shrunk.exact}")
make_plan(borrower, describe(narrower, example), align(borrower, describe(narrower, example)))

# %%
assert report.exact
assert report.difference < 1e-4
assert not shrunk.exact
