"""Rows of two models: what happens to each layer, as the plan says, and where rows repeat."""

from hypothesis import given

from modelkeeper.matching import align
from modelkeeper.server.ui.comparing import compare
from modelkeeper.transform import make_plan
from tests.helpers.generated import networks, vgg


@given(networks, networks)
def test_every_layer_stands_in_one_row(parent, child) -> None:  # type: ignore[no-untyped-def]
    """Law: each layer of both models once, in the child's order, and tensors as the plan has them."""
    found = compare(parent, child, same_task=True, seconds=60)
    rows = found["rows"]
    assert sorted(row["parent"]["number"] for row in rows if row["parent"]) == list(range(len(parent.layers)))
    assert [row["child"]["number"] for row in rows if row["child"]] == list(range(len(child.layers)))
    plan = make_plan(parent, child, align(parent, child), same_task=True)
    said = {t["name"]: t["action"] for row in rows for t in row["tensors"] if "action" in t}
    assert said == {entry.tensor: entry.action for entry in plan.entries}
    assert found["plan"]["exact"] == plan.exact
    assert sum(found["counts"].values()) == len(rows)


def test_a_plan_that_takes_too_long_is_left_out() -> None:
    found = compare(vgg((8,) * 40), vgg((16,) * 40), same_task=True, seconds=-1)
    assert found["plan"] is None
    assert {row["action"] for row in found["rows"]} <= {"same", "changed"}
