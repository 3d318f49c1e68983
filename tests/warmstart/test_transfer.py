"""The law: a child that contains its parent computes what the parent computes. And what is promised holds."""

import copy
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from benchmarks.helpers.permutation import randomise
from benchmarks.helpers.real_pairs import PAIRS, measure
from modelkeeper import Report, transfer
from modelkeeper.errors import InvalidPairs, InvalidSetting, InvalidWeights
from modelkeeper.frontends.torch import describe, difference, read, recalibrate
from modelkeeper.matching import align
from modelkeeper.transform import apply, make_plan
from tests.helpers.networks import BLOCKS, SCENARIOS, Chain, Residual, TiedLanguageModel, network

IMAGE = torch.randn(4, 3, 6, 6)
Blueprint = list[tuple[str, int]]
blueprints = st.lists(st.tuples(st.sampled_from(BLOCKS), st.integers(2, 5)), min_size=1, max_size=4)


def parent_of(width: int, kinds: Blueprint, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = network(width, kinds).eval()
    randomise(model, seed)
    return model


class MaskedMean(nn.Module):
    """BERT, and the mean over those tokens that are no padding: the mask feeds every layer and the end."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        sizes: dict[str, Any] = {
            "vocab_size": 50,
            "hidden_size": 8,
            "intermediate_size": 16,
            "num_attention_heads": 2,
        }
        config = BertConfig(**sizes, num_hidden_layers=layers, max_position_embeddings=16)
        self.bert, self.head = BertModel(config, add_pooling_layer=False), nn.Linear(8, 8)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.head(self.bert(tokens, mask).last_hidden_state)
        share = mask / mask.sum(1, keepdim=True)
        return (hidden * share[..., None].to(hidden.dtype)).sum(1)


def test_a_deeper_bert_with_a_masked_mean_computes_the_same() -> None:
    torch.manual_seed(0)
    parent, child = MaskedMean(6).double().eval(), MaskedMean(12).double().eval()
    tokens, mask = torch.randint(0, 50, (2, 7)), torch.tensor([[1] * 7, [1] * 4 + [0] * 3])
    report = transfer(parent, child, (tokens, mask), verify=True)
    assert report.exact
    assert report.difference is not None
    assert report.difference < 1e-6
    assert not report.alignment.skipped_parent


# -- the law --------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(blueprints, st.integers(2, 5), st.lists(st.integers(0, 4), min_size=5, max_size=5), st.integers(0, 3))
def test_a_wider_child_computes_the_same(kinds: Blueprint, width: int, more: list[int], seed: int) -> None:
    parent = parent_of(width, kinds, seed)
    wider = [(kind, inner + extra) for (kind, inner), extra in zip(kinds, more, strict=False)]
    child = network(width + more[-1], wider)
    report = transfer(parent, child, IMAGE, verify=True)
    assert report.exact, report.plan.doubts
    assert report.difference is not None
    assert report.difference < 1e-5
    assert all(not report.plan.child.tensors[name].live for name in report.missing_keys)


@settings(max_examples=30)
@given(blueprints, st.integers(2, 5), st.integers(0, 3))
def test_a_wider_child_computes_the_same_in_training_mode(kinds: Blueprint, width: int, seed: int) -> None:
    parent = parent_of(width, kinds, seed).double()
    child = network(width + 3, [(kind, inner + 2) for kind, inner in kinds]).double()
    assert transfer(parent, child, IMAGE.double()).exact
    with torch.no_grad():
        torch.testing.assert_close(child.train()(IMAGE.double()), parent.train()(IMAGE.double()))


class Joined(nn.Module):
    """Two parts, one behind the other along places or channels; of one layer or of two.

    What reads them makes two parts in turn, which tells nothing of those that it reads.
    """

    def __init__(self, width: int, along: int, swapped: bool, two: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, width), nn.Linear(4, width) if two else None
        self.reads, self.along, self.swapped = nn.Linear(along * width, 12), along, swapped
        self.left, self.right = nn.Linear(5, 3), nn.Linear(7, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.first(inputs)
        parts = hidden, hidden.relu() if self.second is None else self.second(inputs)
        joined = self.reads(torch.cat(parts[::-1] if self.swapped else parts, self.along))
        left, right = joined.split([5, 7], -1)
        return (self.left(left) + self.right(right)).cumsum(1)


@pytest.mark.parametrize("width", [6, 9])
@pytest.mark.parametrize(("along", "two"), [(1, False), (1, True), (2, False), (2, True)])
def test_parts_in_another_order_are_exact_only_where_weights_tell_them_apart(
    width: int, along: int, two: bool
) -> None:
    parent = Joined(6, along, False, two)
    for swapped in (False, True):
        report = transfer(parent, Joined(width, along, swapped, two), torch.randn(2, 5, 4), verify=True)
        assert report.difference is not None
        assert report.exact is (report.difference < 1e-5) is (not swapped or (two and along == 2))


@pytest.mark.parametrize(("width", "depth"), [(8, 2), (8, 4), (12, 2), (16, 3)])
def test_a_deeper_plain_child_computes_the_same(width: int, depth: int) -> None:
    """Every inserted layer looks like every other, and the first differs: the pairs may not slide apart."""

    def plain(width: int, depth: int) -> nn.Module:
        blocks = [
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
            for _ in range(depth)
        ]
        stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        return nn.Sequential(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))

    parent = plain(8, 1).eval()
    randomise(parent, 0)
    report = transfer(parent, plain(width, depth).eval(), IMAGE, verify=True)
    assert report.exact, report.plan.doubts
    assert report.difference is not None
    assert report.difference < 1e-5


@settings(max_examples=30)
@given(
    st.integers(3, 5),
    st.lists(st.integers(6, 9), min_size=1, max_size=3),
    st.integers(0, 2),
    st.integers(0, 3),
)
def test_a_child_with_more_residual_blocks_computes_the_same(
    width: int, inner: list[int], place: int, seed: int
) -> None:
    """Blocks unlike those of the parent, so that there is no doubt which are new."""
    kinds: Blueprint = [("chain", width), ("residual", 4), ("residual", 5)]
    deeper = [*kinds[: place + 1], *(("residual", each) for each in inner), *kinds[place + 1 :]]
    report = transfer(parent_of(width, kinds, seed), network(width, deeper), IMAGE, verify=True)
    assert report.exact, report.plan.doubts
    assert report.difference is not None
    assert report.difference < 1e-5


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_deeper_plain_net_starts_as_its_parent_but_for_the_noise_it_is_asked_for(noise: float) -> None:
    def net(convolutions: int) -> nn.Module:
        layers: list[nn.Module] = []
        for width, before in ((4, 3), (6, 4)):
            for number in range(convolutions):
                conv = nn.Conv2d(width if number else before, width, 3, padding=1, bias=False)
                layers += [conv, nn.BatchNorm2d(width), nn.ReLU()]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5)).eval()

    parent, child, twin = net(1), net(3), net(3)
    randomise(parent, 0)
    report = transfer(parent, child, IMAGE, noise=noise, verify=True)
    assert report.exact == (not noise), report.plan.doubts
    assert report.difference is not None
    assert (report.difference < 1e-5) == (not noise)
    assert report.difference < 0.5
    transfer(parent, twin, IMAGE, noise=noise)
    for name in (entry.tensor for entry in report.plan.entries if entry.action == "inserted"):
        assert torch.equal(child.state_dict()[name], twin.state_dict()[name])


@pytest.mark.parametrize("noise", [-0.1, float("nan"), float("inf")])
def test_noise_that_is_none_is_refused(noise: float) -> None:
    with pytest.raises(InvalidSetting, match="noise"):
        transfer(Chain(), Chain(), noise=noise)


@settings(max_examples=30)
@given(blueprints, blueprints, st.integers(2, 6), st.integers(2, 6), st.integers(0, 3))
def test_exact_is_never_promised_in_vain(
    ours: Blueprint, theirs: Blueprint, width: int, other: int, seed: int
) -> None:
    parent = parent_of(width, theirs, seed)
    report = transfer(parent, network(other, ours), IMAGE, verify=True)
    assert report.difference is not None
    assert not report.exact or report.difference < 1e-4


@settings(max_examples=30)
@given(blueprints, st.integers(2, 6), st.integers(2, 6), st.booleans())
def test_a_transfer_is_deterministic_and_changes_the_target_only(
    kinds: Blueprint, width: int, other: int, same_task: bool
) -> None:
    parent, child = parent_of(width, kinds, 0), network(other, kinds)
    twin, before = copy.deepcopy(child), copy.deepcopy(parent.state_dict())
    first = transfer(parent, child, IMAGE, same_task=same_task)
    second = transfer(parent, twin, IMAGE, same_task=same_task)
    assert first.plan.entries == second.plan.entries
    assert all(torch.equal(t, twin.state_dict()[name]) for name, t in child.state_dict().items())
    assert all(torch.equal(t, before[name]) for name, t in parent.state_dict().items())


@pytest.mark.parametrize("kind", SCENARIOS, ids=lambda kind: kind.__name__)
def test_the_same_architecture_is_copied(kind: type[nn.Module]) -> None:
    parent, child = kind().eval(), kind().eval()
    report = transfer(parent, child, SCENARIOS[kind])
    assert report.similarity == 1
    assert report.exact
    assert set(report.plan.summary()) == {"copied"}
    for name, tensor in child.state_dict().items():
        assert torch.equal(tensor, parent.state_dict()[name]), name


FAST = [name for name in PAIRS if not any(text in name for text in ("resnet18", "vgg", "mobilenet", "to 64"))]


@pytest.mark.filterwarnings("ignore")  # of the libraries that build the models
@pytest.mark.parametrize("name", FAST)
def test_real_pairs_keep_what_the_plan_promises(name: str) -> None:
    row = measure(name)
    assert row["exact"] == row["contains"], row["doubts"]
    assert not row["exact"] or row["difference"] < 1e-6  # some norms compute in single precision


# -- heads, rows, shapes --------------------------------------------------------------------------


def test_the_head_starts_fresh_for_another_task_or_other_classes() -> None:
    parent = Residual()
    for child, same_task in ((Residual(), False), (_with_classes(7), True)):
        own = copy.deepcopy(child.head.state_dict())
        report = transfer(parent, child, same_task=same_task)
        assert set(report.missing_keys) == {"head.weight", "head.bias"}
        assert set(report.unexpected_keys) >= {"head.weight", "head.bias"}
        assert torch.equal(child.head.weight, own["weight"])
        assert torch.equal(child.get_parameter("stem.0.weight"), parent.get_parameter("stem.0.weight"))


def _with_classes(classes: int) -> Residual:
    model = Residual()
    model.head = nn.Linear(8, classes)
    return model


class Embedded(nn.Sequential):
    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__(nn.Embedding(vocabulary, width), nn.Linear(width, 3))


def test_rows_are_looked_up_by_identity_and_new_ones_are_the_mean() -> None:
    parent, child = Embedded(10, 4), Embedded(13, 4)
    report = transfer(parent, child)
    assert not report.exact
    lent, weight = child.get_parameter("0.weight"), parent.get_parameter("0.weight")
    assert torch.equal(lent[:10], weight)
    torch.testing.assert_close(lent[10:], weight.mean(0).expand(3, 4))


@pytest.mark.parametrize(("padding", "exact"), [(2, True), (1, False)])
def test_a_kernel_grows_from_its_middle(padding: int, exact: bool) -> None:
    def net(kernel: int, padding: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 4, kernel, padding=padding), nn.AdaptiveAvgPool2d(1))

    report = transfer(net(3, 1), net(5, padding), IMAGE, verify=True)
    assert report.exact == exact
    assert report.difference is not None
    assert (report.difference < 1e-6) == exact


def test_a_pointwise_convolution_lends_to_a_linear_layer() -> None:
    class Pointwise(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(6, 8, 1), nn.Conv2d(8, 3, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(torch.tanh(self.a(x[..., None, None]))).flatten(1)

    class Linear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(torch.tanh(self.a(x)))

    x = torch.randn(2, 6)
    parent, child = Pointwise(), Linear()
    transfer(parent, child, x)
    torch.testing.assert_close(child(x), parent(x))


class JoinedNorm(nn.Module):
    """A layer norm over two spaces end to end."""

    def __init__(self, left: int, right: int) -> None:
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(6, left), nn.Linear(6, right), nn.LayerNorm(left + right)
        self.head = nn.Linear(left + right, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(torch.cat([self.a(x), self.b(x)], -1)))


@pytest.mark.parametrize(
    ("left", "right", "exact"), [(4, 6, True), (8, 12, True), (8, 18, False), (4, 12, False)]
)
def test_what_is_normalised_together_grows_together(left: int, right: int, exact: bool) -> None:
    x = torch.randn(2, 6)
    report = transfer(JoinedNorm(4, 6), JoinedNorm(left, right), x, verify=True)
    assert report.exact == exact
    assert report.difference is not None
    assert (report.difference < 1e-5) == exact


def test_a_table_that_is_not_stored_lends_nothing() -> None:
    class Scaled(Chain):
        def __init__(self, persistent: bool) -> None:
            super().__init__()
            self.table: torch.Tensor
            self.register_buffer("table", torch.full((3,), 2.0), persistent=persistent)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.through(x) * self.table

    report = transfer(Scaled(persistent=False), Scaled(persistent=True))
    assert report.missing_keys == ["table"]


def test_narrowing_keeps_the_units_that_weigh_most() -> None:
    parent, child = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)), None
    first, bias, last = (parent.get_parameter(name) for name in ("0.weight", "0.bias", "2.weight"))
    with torch.no_grad():
        first[[1, 4]] *= 1e-3
        last[:, [1, 4]] *= 1e-3
        bias[[1, 4]] = 0
    child = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    report = transfer(parent, child)
    assert not report.exact
    assert torch.equal(child.get_parameter("0.weight"), first[[0, 2, 3, 5]])
    assert difference(parent, child) < 1e-4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_dtypes_of_the_target_are_kept(dtype: torch.dtype) -> None:
    parent, child = Residual(), Residual().to(dtype)
    assert transfer(parent, child).exact
    assert child.head.weight.dtype == dtype
    torch.testing.assert_close(child.head.weight.float(), parent.head.weight, rtol=1e-2, atol=1e-3)


# -- reports, options, wrong use ------------------------------------------------------------------


def test_a_report_prints_as_a_table_and_as_json() -> None:
    report = transfer(Chain(), Chain(), verify=True)
    assert isinstance(report, Report)
    text = str(report)
    assert "copied" in text
    assert "exact: the child computes what the parent computes" in text
    assert "relative difference" in text
    assert b'"exact":true' in report.plan.to_json()


def test_shrink_and_perturb_lies_between_warm_and_cold() -> None:
    parent, child = Chain(), Chain()
    own = copy.deepcopy(child.state_dict())
    transfer(parent, child, shrink_perturb=(0.5, 0.2))
    weight = 0.5 * parent.get_parameter("0.weight") + 0.2 * own["0.weight"]
    torch.testing.assert_close(child.get_parameter("0.weight"), weight)
    assert torch.equal(child.get_parameter("0.bias"), parent.get_parameter("0.bias"))


def test_recalibrated_norms_have_the_statistics_of_the_data() -> None:
    model = Residual().train()
    model.inner.eval()
    batches = [torch.randn(8, 3, 6, 6) * 3 + 1 for _ in range(4)]
    weights = copy.deepcopy(dict(model.named_parameters()))
    assert recalibrate(model, [(batch, None) for batch in batches]) == 3
    assert model.training
    assert not model.inner.training
    seen = torch.cat([model.stem[0](batch) for batch in batches])
    torch.testing.assert_close(model.stem[1].running_mean, seen.mean((0, 2, 3)), rtol=1e-4, atol=1e-4)
    assert all(torch.equal(p, weights[name]) for name, p in model.named_parameters())
    with pytest.raises(ValueError, match="at least one batch"):
        recalibrate(model, [])


def test_a_graph_and_a_file_can_lend(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    parent, child = Residual().eval(), Residual().eval()
    save_file(
        {name: t.contiguous() for name, t in parent.state_dict().items()}, tmp_path / "model.safetensors"
    )
    assert transfer(describe(parent), child, weights=tmp_path / "model.safetensors").exact
    assert difference(parent, child) == 0
    with pytest.raises(InvalidWeights, match="pass weights="):
        transfer(describe(parent), child)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_file_lends_one_tensor_at_a_time(tmp_path: Path, dtype: torch.dtype) -> None:
    from safetensors.torch import save_file

    parent, child = Residual().eval().to(dtype), Residual().eval().to(dtype)
    path = tmp_path / "model.safetensors"
    save_file({name: t.contiguous() for name, t in parent.state_dict().items()}, path)
    transfer(describe(parent), child, weights=path)
    assert all(torch.equal(t, child.state_dict()[name]) for name, t in parent.state_dict().items())
    save_file({"stem.0.weight": parent.get_parameter("stem.0.weight").detach()}, path)
    with pytest.raises(InvalidWeights, match="do not hold it"):
        transfer(describe(parent), child, weights=path)


@pytest.mark.parametrize("content", [None, b"", b"\x08\0\0\0\0\0\0\0{broken}"])
def test_a_file_that_is_none_lends_nothing(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "model.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidWeights, match=r"model\.safetensors"):
        transfer(describe(Residual()), Residual(), weights=path)


@pytest.mark.parametrize("pairs", [[(0, 99)], [(-1, 0)], [(0, 0), (0, 1)], [(0, 0), (1, 0)]])
def test_pairs_that_cannot_be_are_refused(pairs: list[tuple[int, int]]) -> None:
    graph = describe(Chain())
    with pytest.raises(InvalidPairs, match="Take the pairs from `align`"):
        make_plan(graph, graph, pairs)


@settings(max_examples=20)
@given(blueprints, blueprints, st.integers(2, 6))
def test_a_summary_accounts_for_every_layer_and_number(
    ours: Blueprint, theirs: Blueprint, width: int
) -> None:
    graphs = describe(network(4, theirs), IMAGE), describe(network(width, ours), IMAGE)
    plan = make_plan(*graphs, align(*graphs))
    rows = plan.summary().values()
    stored = [tensor for tensor in plan.child.tensors.values() if tensor.stored]
    assert sum(row["tensors"] for row in rows) == len(stored)
    assert sum(row["parameters"] for row in rows) == sum(tensor.size for tensor in stored)
    assert sum(row["layers"] for row in rows) == len({entry.layer for entry in plan.entries})
    assert sum(row["percent"] for row in rows) == pytest.approx(100, abs=0.1)
    assert sum(row["percent_of_layers"] for row in rows) == pytest.approx(100, abs=0.1)
    kept, inserted = (plan.summary().get(action, {}).get("percent", 0) for action in ("kept", "inserted"))
    assert 99.9 - kept - inserted <= 100 * plan.coverage <= 100.1 - kept
    assert json.loads(plan.to_json())["coverage"] == pytest.approx(plan.coverage, abs=1e-4)


FAULTS: dict[str, Callable[[np.ndarray], object]] = {
    "missing": lambda array: None,
    "shape": lambda array: np.zeros((3, 3)),
    "nan": lambda array: np.where(np.arange(array.size).reshape(array.shape), array, np.nan),
    "half nan": lambda array: np.full(array.shape, np.nan, np.float16),
    "no axis": lambda array: np.float32(1).reshape(()),
    "empty": lambda array: np.zeros((0, *array.shape[1:]), np.float32),
    "list": lambda array: array.tolist(),
    "strings": lambda array: array.astype(str),
}


@pytest.mark.parametrize("where", ["outer.0.weight", "head.bias"])
@pytest.mark.parametrize("wider", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
def test_bad_weights_of_the_parent_change_nothing(fault: str, wider: bool, where: str) -> None:
    parent: nn.Module = Residual()
    child: nn.Module = network(8, [("residual", 9)]) if wider else Residual()
    if wider:
        parent, where = network(4, [("residual", 6)]), {"head.bias": "4.bias"}.get(where, "1.b.0.weight")
    graph = describe(parent, IMAGE)
    weights: dict[str, Any] = {name: array.copy() for name, array in read(parent)}
    weights[where] = FAULTS[fault](weights[where])
    if fault == "missing":
        del weights[where]
    before = copy.deepcopy(child.state_dict())
    with pytest.raises(InvalidWeights, match=re.escape(where)):
        transfer(graph, child, IMAGE, weights=weights)
    assert all(torch.equal(t, before[name]) for name, t in child.state_dict().items())
    described = describe(child, IMAGE)
    with pytest.raises(InvalidWeights, match=re.escape(where)):
        dict(apply(make_plan(graph, described, align(graph, described)), weights))


class Odd(nn.Module):
    """What is there beside plain weights: a number without axes, counts, a flag, nothing at all."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, width), nn.Linear(width, 3)
        self.scale = nn.Parameter(torch.rand(()))
        self.none = nn.Parameter(torch.zeros(0, 4))
        self.steps: torch.Tensor
        self.seen: torch.Tensor
        self.flag: torch.Tensor
        self.register_buffer("steps", torch.tensor(7))
        self.register_buffer("seen", torch.arange(3))
        self.register_buffer("flag", torch.tensor([True, False, True]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.second(torch.tanh(self.first(x))) * self.scale + self.seen + self.steps
        return torch.where(self.flag, y, -y) + self.none.sum()


@pytest.mark.parametrize("width", [5, 8])
def test_empty_tensors_numbers_without_axes_and_integers_are_transferred_or_kept(width: int) -> None:
    parent, child = Odd(5), Odd(width)
    parent.steps += 4
    parent.seen += 2
    report = transfer(parent, child, torch.randn(2, 6), verify=True)
    assert report.exact
    assert report.difference is not None
    assert report.difference < 1e-5
    for name in ("scale", "none", "steps", "seen", "flag"):
        entry = next(each for each in report.plan.entries if each.tensor == name)
        assert torch.equal(child.state_dict()[name], parent.state_dict()[name]) or entry.why, name
        assert child.state_dict()[name].dtype == parent.state_dict()[name].dtype


def test_apply_asks_for_one_tensor_at_a_time() -> None:
    parent, child = TiedLanguageModel(), TiedLanguageModel()
    asked: list[str] = []

    class Watching(dict[str, np.ndarray]):
        def __getitem__(self, name: str) -> np.ndarray:
            asked.append(name)
            return super().__getitem__(name)

    graphs = describe(parent, SCENARIOS[TiedLanguageModel]), describe(child, SCENARIOS[TiedLanguageModel])
    made = apply(make_plan(*graphs, align(*graphs)), Watching(read(parent)))
    assert asked == []
    next(made)
    assert len(asked) == 1


def test_a_transfer_needs_no_zoo_to_be_imported() -> None:
    """Neither its database nor its store nor HTTP; and no framework, before a model comes."""
    code = "import modelkeeper, sys; modelkeeper.transfer; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"sqlalchemy", "alembic", "httpx", "obstore", "torch", "pytest"} & set(run.stdout.split())
