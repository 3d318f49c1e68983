"""Programs: they compute what the model computes, at any batch size, and nothing else goes into them."""

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from benchmarks.helpers.permutation import randomise
from modelkeeper.errors import InvalidProgram, NoProgram
from modelkeeper.frontends.programs.names import layer_kind, vocabulary_name
from modelkeeper.frontends.programs.passes import check_run
from modelkeeper.frontends.programs.program import MAX_STEPS, Step
from modelkeeper.frontends.torch import Program, run
from modelkeeper.frontends.torch.named_tensors import named_tensors
from modelkeeper.frontends.torch.record_program import record_program
from modelkeeper.frontends.torch.run_program import ENGINE
from tests.helpers.networks import BLOCKS, SCENARIOS, Recurrent, network

GOLDEN = Path(__file__).parent / "golden" / "program-v1.json"
WITHOUT = {"InPlace": "into a part"}  # scenarios, and why they have no program


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: named.tensor.detach() for named in named_tensors(model) for name in named.names}


class Small(nn.Module):
    """A bit of all that the format has: a size that follows the batch, a constant, a special number."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(2, 3, 3, padding=1), nn.Linear(12, 2)

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.tensor([True, False, False]).view(1, 3, 1, 1).expand(x.shape[0], 3, 1, 1)
        x = torch.relu_(self.conv(x)).masked_fill(mask, -float("inf")).clamp(min=-1.0)
        made: Tensor = self.head(x.reshape(x.shape[0] * 2, -1)[:, :12].view(x.shape[0], 2, 12))
        return made


def small() -> tuple[Program, dict[str, Tensor]]:
    torch.manual_seed(0)
    model = Small().eval()
    return record_program(model, torch.zeros(1, 2, 4, 4)), tensors_of(model)


# -- what it computes -------------------------------------------------------------------------------


@settings(max_examples=15)
@given(
    st.lists(st.tuples(st.sampled_from(BLOCKS), st.integers(2, 5)), min_size=1, max_size=4), st.integers(1, 5)
)
def test_a_program_computes_what_the_model_computes(kinds: list[tuple[str, int]], batch: int) -> None:
    model = network(4, kinds).eval()
    randomise(model, 0)
    program = Program.from_bytes(record_program(model, torch.zeros(1, 3, 6, 6)).to_bytes())
    x = torch.randn(batch, 3, 6, 6)
    with torch.no_grad():
        torch.testing.assert_close(run(program, tensors_of(model), [x])["output"], model(x))
        other = run(program.shortcuts_first(), tensors_of(model), [x])
        torch.testing.assert_close(other["output"], model(x))


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("kind", SCENARIOS, ids=lambda kind: kind.__name__)
def test_every_scenario_has_a_program_or_says_why_not(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model, example = kind().eval(), SCENARIOS[kind]
    if kind.__name__ in WITHOUT:
        with pytest.raises(NoProgram, match=WITHOUT[kind.__name__]):
            record_program(model, example)
        return
    program = record_program(model, example)
    x = torch.cat([example, example.flip(0), example])
    with torch.no_grad():
        wanted = model(x)
    output = run(program, tensors_of(model), [x], ["output"])["output"]
    torch.testing.assert_close(output, wanted[0] if isinstance(wanted, tuple) else wanted)


def test_layers_are_captured_before_what_is_done_to_them_in_place() -> None:
    program, tensors = small()
    x = torch.randn(2, 2, 4, 4)
    output = run(program, tensors, [x], ["conv"])["conv"]
    torch.testing.assert_close(
        output, torch.conv2d(x, tensors["conv.weight"], tensors["conv.bias"], padding=1)
    )
    assert (output < 0).any()


def test_running_changes_neither_inputs_nor_tensors() -> None:
    program, tensors = small()
    x = torch.randn(2, 2, 4, 4)
    before = {name: tensor.clone() for name, tensor in tensors.items()}, x.clone()
    run(program, tensors, [x])
    assert torch.equal(x, before[1])
    assert all(torch.equal(tensors[name], tensor) for name, tensor in before[0].items())


def test_a_model_that_mixes_examples_by_number_has_no_program() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            made: Tensor = self.head(x)
            return made * 2 if len(x) > 2 else made

    with pytest.raises(NoProgram, match="three examples"):
        record_program(Odd(), torch.zeros(1, 4))


class Fourier(nn.Module):
    """Mixes tokens and units by a Fourier transform, as FNet does."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(torch.fft.fftn(x, dim=(1, 2)).real + torch.fft.fft(x).imag)
        return output


def test_fourier_transforms_run() -> None:
    model, x = Fourier().eval(), torch.randn(5, 4, 6)
    program = Program.from_bytes(record_program(model, x[:2]).to_bytes())
    with torch.no_grad():
        torch.testing.assert_close(run(program, tensors_of(model), [x])["output"], model(x))


def test_recurrent_models_run_at_other_batch_sizes() -> None:
    model = Recurrent().eval()
    example = SCENARIOS[Recurrent]
    program = record_program(model, example)
    x = example.repeat(5, *[1] * (example.ndim - 1))
    with torch.no_grad():
        torch.testing.assert_close(run(program, tensors_of(model), [x], ["output"])["output"], model(x))


# -- the format -------------------------------------------------------------------------------------


def test_version_1_stays_as_it_is() -> None:
    program, _ = small()
    if not GOLDEN.exists():
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_bytes(program.to_bytes())
    assert Program.from_bytes(GOLDEN.read_bytes()) == program
    assert program.to_bytes() == GOLDEN.read_bytes()


# -- hostile programs -------------------------------------------------------------------------------


def document(**changes: Any) -> bytes:
    whole = json.loads(small()[0].to_bytes())
    return json.dumps(whole | changes).encode()


def with_step(*step: Any, at: int = 0) -> bytes:
    whole = json.loads(small()[0].to_bytes())
    whole["steps"].insert(at, list(step))
    return json.dumps(whole).encode()


V = {"v": 0}
STEPS = {
    "an unknown operation": ["system.default", [V]],
    "a name with a path": ["../linear.default", [V]],
    "an operation that is known but not on the list": ["set_.source_Tensor", [V, V]],
    "one that reads a file": ["from_file.default", ["/etc/passwd", False, 10]],
    "one that writes": ["add_.Tensor", [V, V]],
    "one with sizes that depend on numbers": ["nonzero.default", [V]],
    "one that reads memory by stride": ["as_strided.default", [V, [4], [1]]],
    "one that draws": ["bernoulli.default", [V]],
    "too few arguments": ["conv2d.default", [V]],
    "too many arguments": ["relu.default", [V, V, V]],
    "a number for a list of tensors": ["cat.default", [3]],
    "a tensor where a number belongs": ["softmax.int", [V, V]],
    "a value that is not there": ["relu.default", [{"v": 900}]],
    "a value of its own": ["relu.default", [{"v": 40}]],
    "a negative value": ["relu.default", [{"v": -7}]],
    "two things at once": ["relu.default", [{"v": 0, "b": 1}]],
    "a value and a length": ["relu.default", [{"v": 0, "l": 1}]],
    "more, but than nothing": ["reshape.default", [V, [{"n": 3}]]],
    "a negative batch": ["reshape.default", [V, [{"b": -1, "l": 1}]]],
    "no dtype": ["_to_copy.default", [V, "qint8"]],
    "results it does not give": ["relu.default", [V], 3],
    "no results": ["relu.default", [V], 0],
    "as in training": ["batch_norm.default", [V, None, None, V, V, True, 0.1, 1e-5, False]],
    "statistics that are written": ["instance_norm.default", [V, None, None, V, V, True, 0.1, 1e-5, False]],
    "a list in a list": ["reshape.default", [V, [[1]]]],
    "an object": ["relu.default", [{"__reduce__": "os.system"}]],
    "a huge list": ["reshape.default", [V, [1] * 5000]],
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_hostile_step_is_refused(step: list[Any]) -> None:
    with pytest.raises(InvalidProgram):
        Program.from_bytes(with_step(*step))


DOCUMENTS = {
    "no JSON": b"\x80\x04pickle",
    "another format": b'{"format": "modelkeeper.graph", "version": 1}',
    "a later version": document(version=2),
    "unknown fields": document(code="import os"),
    "no inputs": document(inputs=[]),
    "an output that is not there": document(outputs=[10_000]),
    "a layer that is not there": document(layers={"conv": -1}),
    "a huge tensor": document(tensors=[["w", "float32", [2**40]]]),
    "a negative size": document(inputs=[["0", "float32", [-1, 2]]]),
    "an input of two lengths": document(inputs=[["0", "float32", [{"b": 1}, {"l": 2}]]]),
    "an input of batch times length": document(inputs=[["0", "float32", [{"b": 1, "l": 1}]]]),
    "an unknown dtype": document(inputs=[["0", "object", [1]]]),
    "too many steps": document(steps=[["relu.default", [V]]] * (MAX_STEPS + 1)),
    "deep nesting": b"[" * 100_000,
}


@pytest.mark.parametrize("data", DOCUMENTS.values(), ids=DOCUMENTS)
def test_a_hostile_document_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidProgram):
        Program.from_bytes(data)


def test_a_constant_is_unpacked_to_no_more_than_its_shape() -> None:
    import base64

    for bomb in (zlib.compress(bytes(10**8)), b"no zlib"):
        data = base64.b64encode(bomb).decode()
        with pytest.raises(InvalidProgram, match="constant"):
            Program.from_bytes(document(constants=[["bool", [1, 3, 1, 1], data]] * 2))
    with pytest.raises(InvalidProgram, match="constants"):
        Program.from_bytes(document(constants=[["bool", [2**24], ""]] * 3))


LARGE = {
    "a huge value": [["expand.default", [V, [2**30, 2, 4, 4]]]],
    "a huge new tensor": [["zeros.default", [[2**33]]]],
    "many pieces": [["expand.default", [V, [2**14, 2, 4, 4]]], ["unbind.int", [{"v": -1}]]],
    "doubling": [["cat.default", [[{"v": -1}, {"v": -1}]]]] * 40,
    "work without end": [
        ["constant_pad_nd.default", [V, [4096, 4095, 4096, 4095]]],
        ["avg_pool2d.default", [{"v": -1}, [4096, 4096], [1, 1]]],
    ],
}


@pytest.mark.parametrize("steps", LARGE.values(), ids=LARGE)
def test_what_would_take_too_much_is_refused_before_it_runs(steps: list[Any]) -> None:
    taken = [["0", "float32", [{"b": 1}, 2, 4, 4]]]
    made = []
    for number, step in enumerate(steps):  # -1 stands for the value made last

        def last(item: Any, number: int = number) -> Any:
            if isinstance(item, list):
                return [last(each) for each in item]
            return {"v": number} if item == {"v": -1} else item

        made.append([step[0], last(step[1])])
    data = document(inputs=taken, tensors=[], constants=[], steps=made, outputs=[0], layers={})
    program = Program.from_bytes(data)
    with pytest.raises(InvalidProgram, match=r"too large|pieces|results"):
        check_run(ENGINE, program, {}, [np.zeros((1, 2, 4, 4), np.float32)])


def test_a_program_that_does_not_fit_its_tensors_or_inputs_says_so() -> None:
    program, tensors = small()
    x = torch.zeros(2, 2, 4, 4)
    with pytest.raises(InvalidProgram, match=r"conv\.weight"):
        run(program, tensors | {"conv.weight": torch.zeros(1)}, [x])
    with pytest.raises(InvalidProgram, match="missing"):
        run(program, {}, [x])
    with pytest.raises(InvalidProgram, match="axes"):
        run(program, tensors, [x[0]])
    with pytest.raises(InvalidProgram, match="step 0"):
        run(program, tensors, [torch.zeros(2, 5, 4, 4)])


def test_a_step_that_is_built_in_python_is_checked_too() -> None:
    program, _ = small()
    with pytest.raises(InvalidProgram, match="not on the list"):
        Program(program.inputs, (), (), (Step("exec.default", ()),), (0,), {})


# -- in the words of the vocabulary -----------------------------------------------------------------


def test_operations_of_programs_are_known_to_the_vocabulary() -> None:
    program, _ = small()
    kinds = {layer_kind(step.operation) for step in program.steps}
    assert kinds == {"conv", "linear", ""}
    names = {"add.Tensor": "add", "mm.default": "matmul", "relu.default": "relu"}
    assert {operation: vocabulary_name(operation) for operation in names} == names
    others = {"conv_transpose2d.input": "conv_transpose", "native_layer_norm.default": "layer_norm"}
    assert {operation: layer_kind(operation) for operation in others} == others
