"""The seam: a front end of plain data describes, aligns, plans and loads with no framework installed."""

import subprocess
import sys
from pathlib import Path

import numpy as np

from modelkeeper.graph import Fixed
from modelkeeper.graph.vocabulary import NORMS
from modelkeeper.matching import align
from modelkeeper.tracing.describe import account_for, describe
from modelkeeper.tracing.trace import OwnedTensor, Step, Trace, Value
from modelkeeper.transform import apply, make_plan
from tests.helpers.plain import FRONTEND, PlainModel


def test_a_trace_of_plain_data_becomes_a_graph() -> None:
    graph = describe(FRONTEND.trace(PlainModel(4)))
    assert graph.framework == "plain"
    assert [layer.kind for layer in graph.layers] == [
        "input",
        "linear",
        "layer_norm",
        "linear",
        "linear",
        "add",
        "linear",
        "output",
    ]
    assert [edge.via for layer in graph.layers for edge in layer.inputs].count(("tanh",)) == 1
    stream = graph.tensors["first.weight"].axes[0].of
    assert graph.tensors["second.weight"].axes[0].of == stream == graph.tensors["norm.gain"].axes[0].of
    assert graph.tensors["first.weight"].axes[1].of == Fixed(5, "input")
    assert not graph.notes


def test_a_wider_model_computes_the_same() -> None:
    parent, child = PlainModel(4, seed=0), PlainModel(8, seed=1)
    x = np.random.default_rng(2).normal(size=(7, 5)).astype(np.float32)
    lender, receiver = (describe(FRONTEND.trace(model)) for model in (parent, child))
    plan = make_plan(lender, receiver, align(lender, receiver))
    assert plan.exact, plan.doubts
    assert FRONTEND.load(child, dict(apply(plan, parent.weights))) is child
    np.testing.assert_allclose(child(x), parent(x), rtol=1e-4, atol=1e-4)


def test_no_framework_is_needed() -> None:
    """What is blocked here cannot be imported, as on a machine where it is not installed."""
    code = """
import sys
for name in ("torch", "tensorflow", "keras", "jax", "onnx"):
    sys.modules[name] = None
from modelkeeper.frontends import register
from modelkeeper.warmstart.transfer import transfer
from modelkeeper import ModelKeeperClient
from tests.helpers.plain import FRONTEND, PlainModel
register(FRONTEND)
report = transfer(PlainModel(4), PlainModel(8, 1))
assert report.exact, report
client = ModelKeeperClient(":memory:", on_error="raise")
client.register_model(PlainModel(4), {"data": "d", "task": "t", "accuracy": 0.9, "name": "small"})
model, answer = client.query_for_model(PlainModel(12, 1), {"data": "d", "task": "t"})
assert (answer.parent_name, answer.exact) == ("small", True), answer
print("done")
"""
    root = Path(__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert run.stdout == "done\n", run.stderr


def test_an_operation_that_nobody_knows_is_opaque_and_noted() -> None:
    x, weight = Value(0, (2, 4)), Value(1, (4, 4), owner=OwnedTensor(("w",), (4, 4), "float32"))
    x.active = True
    made, odd = Value(2, (2, 4)), Value(3, (2, 4))
    steps = [Step("linear", {"input": x, "weight": weight}, [x, weight], [made])]
    steps.append(Step("frobnicate", {"self": made, "times": 3}, [made], [odd]))
    for step in steps:
        step.outputs[0].step, step.outputs[0].active = step, True
    graph = describe(Trace("plain", [x], [odd], steps, [weight.owner] if weight.owner else []))
    assert [note.topic for note in graph.notes] == ["opaque"]
    assert "frobnicate" in str(graph.notes[0])
    assert graph.layers[-1].inputs[0].via == ("frobnicate[3]",)
    assert graph.spaces[0].pinned_by("opaque")


def test_the_evidence_says_which_value_a_layer_makes() -> None:
    account = account_for(FRONTEND.trace(PlainModel(4)))
    shapes = {account.graph.layers[number].name: value.shape for number, value in account.values.items()}
    assert shapes["inner"] == (1, 8)
    assert {layer.kind for layer in account.graph.layers if layer.kind in NORMS} == {"layer_norm"}


def test_a_front_end_says_whose_a_tensor_is_and_which_only_count() -> None:
    """By fields, not by how one framework spells names: another one may write dense/kernel."""
    kernel = OwnedTensor(("dense/kernel",), (3, 4), "float32", module="dense")
    seen = OwnedTensor(("dense/seen",), (), "int64", parameter=False, counts=True, module="dense")
    values = [Value(0, (2, 3)), Value(1, (3, 4), owner=kernel), Value(2, (2, 4))]
    step = Step("matmul", {"self": values[0], "other": values[1]}, values[:2], [values[2]])
    values[2].step, values[0].active, values[2].active = step, True, True
    graph = describe(Trace("keras", [values[0]], [values[2]], [step], [kernel, seen]))
    assert [(layer.name, layer.kind) for layer in graph.layers][1] == ("dense", "linear")
    assert [(t.name, t.role, t.live) for t in graph.layers[1].tensors] == [
        ("dense/kernel", "weight", True),
        ("dense/seen", "count", True),
    ]
    assert [axis.role for axis in graph.tensors["dense/kernel"].axes] == ["in", "out"]
