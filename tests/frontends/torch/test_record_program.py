"""Programs of models that take sequences: they run at any length, or say that they do not."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from benchmarks.training import language
from modelkeeper import ModelKeeperClient
from modelkeeper.errors import InvalidProgram
from modelkeeper.frontends.torch import Program, run
from modelkeeper.frontends.torch.named_tensors import named_tensors
from modelkeeper.frontends.torch.record_program import record_program

WORDS, CONTEXT = 11, 64
GUESSED = None


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: named.tensor.detach() for named in named_tensors(model) for name in named.names}


def tokens(batch: int, length: int) -> Tensor:
    return torch.randint(0, WORDS, (batch, length))


def check(model: nn.Module, program: Program, x: Tensor) -> None:
    with torch.no_grad():
        wanted = model(x)
    output = run(program, tensors_of(model), [x], ["output"])["output"]
    torch.testing.assert_close(output, wanted if isinstance(wanted, Tensor) else wanted.logits)


class Sequential(nn.Module):
    """Sizes of all kinds: one more than the length, batch times length, twice the length; a mask that is
    written in place, positions, a decay that counts from the end."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 8), nn.Embedding(32, 8)
        self.begin = nn.Parameter(torch.randn(1, 1, 8))
        self.mix, self.head = nn.Linear(8, 8), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        batch, length = x.shape
        x = self.words(x) + self.places(torch.arange(length))
        x = torch.cat([self.begin.expand(batch, 1, 8), x], 1)
        mask = torch.ones(length + 1, length + 1, dtype=torch.bool).tril_()
        decay = torch.arange(length + 1).flip(0).neg().float().div_(4).exp()
        x = self.mix(x.reshape(batch * (length + 1), 8)).view(batch, length + 1, 8)
        scores = (x @ x.transpose(1, 2)).masked_fill(~mask, -float("inf")).softmax(-1) * decay
        x = torch.cat([scores @ x, x], 1).view(batch, 2 * (length + 1), 8)
        output: Tensor = self.head(x.reshape(batch, length + 1, 16))
        return output[:, : length // length]


@pytest.fixture(scope="module")
def sequential() -> tuple[nn.Module, Program]:
    torch.manual_seed(0)
    model = Sequential().eval()
    return model, Program.from_bytes(record_program(model, tokens(2, 12)).to_bytes())


@settings(max_examples=25)
@given(st.integers(1, 5), st.integers(1, 32))
def test_sizes_follow_batch_and_length(
    sequential: tuple[nn.Module, Program], batch: int, length: int
) -> None:
    check(*sequential, tokens(batch, length))


@pytest.mark.parametrize("example", [GUESSED, tokens(2, CONTEXT)], ids=["guessed", "longest"])
@pytest.mark.parametrize("kind", language.KINDS)
def test_language_models_run_at_other_sizes_than_they_were_recorded_with(
    kind: str, example: Tensor | None
) -> None:
    model = language.build({"kind": kind, "width": 32, "depth": 2}, WORDS, 0).eval()
    program = Program.from_bytes(record_program(model, example).to_bytes())
    for batch, length in ((1, CONTEXT), (3, 16), (16, 5), (128, 33), (2, 1)):
        check(model, program, tokens(batch, length))


@pytest.mark.parametrize(
    "parent",
    [pytest.param((48, 1), id="narrower"), pytest.param((32, 2), id="shallower", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("kind", language.KINDS)
def test_a_registered_language_model_calibrates_a_smaller_one(kind: str, parent: tuple[int, int]) -> None:
    large, small = (
        language.build({"kind": kind, "width": width, "depth": depth}, WORDS, width + depth)
        for width, depth in (parent, (32, 1))
    )
    client = ModelKeeperClient(":memory:", on_error="raise")
    client.register_model(large, meta={"data": "text", "accuracy": 0.5})
    _, answer = client.query_for_model(small, meta={"data": "text"}, calibrate=tokens(32, CONTEXT))
    assert answer.calibration is not None
    assert answer.warnings == ()


class Halves(nn.Module):
    """What is done with a sequence is not linear in its length."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(self.words(x[:, : x.shape[1] // 2]))
        return output


class Evens(Halves):
    """Other operations for some lengths."""

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(self.words(x))
        return output if x.shape[1] % 2 else output * 2


class Unrolled(Halves):
    """As many operations as there are tokens, and results."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.head(each) for each in self.words(x).unbind(1)], 1)


@pytest.mark.parametrize("kind", [Halves, Evens, Unrolled])
def test_what_does_not_follow_the_length_runs_at_the_one_it_was_recorded_with(
    kind: Callable[[], nn.Module],
) -> None:
    model = kind().eval()
    program = record_program(model, tokens(2, 16))
    check(model, program, tokens(5, 16))
    with pytest.raises(InvalidProgram, match=r"recorded with '0' of 16 .* given 7: .* example_inputs"):
        run(program, tensors_of(model), [tokens(5, 7)])


def test_inputs_that_disagree_about_the_length_are_refused() -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(WORDS, 4)

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            output: Tensor = self.words(x) * mask[..., None]
            return output

    model = Sum().eval()
    program = record_program(model, (tokens(2, 9), torch.ones(2, 9)))
    assert [len(taken.shape) for taken in program.inputs] == [2, 2]
    assert run(program, tensors_of(model), [tokens(3, 7), torch.ones(3, 7)])["output"].shape == (3, 7, 4)
    with pytest.raises(InvalidProgram, match="length"):
        run(program, tensors_of(model), [tokens(3, 7), torch.ones(3, 1)])


class Overwritten(nn.Module):
    """A constant is used, then written over and used again."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        scale = torch.arange(4) + len(x)
        x = self.head(x) * scale
        scale.mul_(3)
        output: Tensor = self.head(x) * scale
        return output


class Windows(nn.Module):
    """A constant for each window of each example, as Swin masks its windows."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        mask = (torch.arange(3) % 2).repeat(len(x))[:, None]
        output: Tensor = self.head(x.reshape(-1, 4)) * mask
        return output


@pytest.mark.parametrize(("kind", "shape"), [(Overwritten, (4,)), (Windows, (3, 4))])
def test_constants_that_depend_on_the_batch_are_made_when_it_runs(
    kind: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    model = kind().eval()
    program = Program.from_bytes(record_program(model, torch.zeros(1, *shape)).to_bytes())
    check(model, program, torch.randn(7, *shape))


def test_equal_constants_are_kept_once() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            output: Tensor = self.head(x * torch.arange(4)) * torch.arange(4)
            return output

    program = record_program(Twice(), torch.zeros(1, 4))
    assert len(program.constants) == 1
