"""The route to a comparison of two models: alignment, actions and summary as data."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest

from modelkeeper.matching import align
from modelkeeper.server.app import Application
from modelkeeper.server.routes.comparing import Difference
from modelkeeper.settings import ServiceSettings
from modelkeeper.transform import make_plan
from tests.helpers.generated import resnet
from tests.helpers.service import Team, team, tensors, told

SMALL, LARGE = resnet((2, 2), 8), resnet((3, 2), 12)


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with team(tmp_path_factory.mktemp("comparing"), rate=10_000) as found:
        ada = found.join("ada")
        found.accounts.add_project("secret", ("ada",))
        hidden: dict[str, Any] = {"project": "secret", "visibility": "private"}
        seen: dict[str, Any] = {"visibility": "public"}
        models = (("small", SMALL, seen), ("large", LARGE, seen), ("hid", SMALL, hidden))
        for seed, (name, graph, more) in enumerate(models):
            ada.register(graph, told(name, **more), tensors(graph, seed).items())
        yield found


def ask(keeper: Team, status: int = 200, user: str = "eve", **asked: str) -> bytes:
    token = (
        keeper.accounts.add_token(user, "read")
        if user == "ada"
        else keeper.token(f"{user}{id(asked)}", "read")
    )
    headers = {"authorization": f"Bearer {token}"}
    reply = httpx.get(f"{keeper.url}/v1/diff", params=asked, headers=headers, timeout=60)
    assert reply.status_code == status, reply.text
    return reply.content


def test_two_models_are_compared_as_a_start_would_have_it(keeper: Team) -> None:
    found = msgspec.json.decode(ask(keeper, parent="small", child="large"), type=Difference)
    alignment = align(SMALL, LARGE)
    plan = make_plan(SMALL, LARGE, alignment)
    assert found.similarity == pytest.approx(alignment.similarity)
    both = {(row.parent.number, row.child.number) for row in found.rows if row.parent and row.child}
    assert both == set(alignment.pairs)
    assert [row.parent.number for row in found.rows if row.parent and not row.child] == sorted(
        alignment.skipped_parent
    )
    assert [row.child.number for row in found.rows if row.child] == list(range(len(LARGE.layers)))
    assert found.counts == Counter(row.action for row in found.rows)
    assert found.plan is not None
    assert (found.plan.exact, found.plan.doubts) == (plan.exact, plan.doubts)
    assert found.plan.coverage == pytest.approx(plan.coverage)
    assert msgspec.to_builtins(found.plan.actions) == plan.summary()
    assert (found.parent.layers, found.child.parameters) == (len(SMALL.layers), LARGE.parameters)
    assert found.child.fingerprint == LARGE.fingerprint
    first = next(row for row in found.rows if row.child and row.child.kind == "conv")
    assert first.child is not None
    assert first.child.shapes == ((12, 3, 3, 3),)
    assert "weight 8x3x3x3 → 12x3x3x3" in first.differs
    by_id = ask(keeper, parent=found.parent.id, child=found.child.id)
    assert msgspec.json.decode(by_id, type=Difference) == found


def test_what_is_not_known_or_not_to_be_seen_is_refused(keeper: Team) -> None:
    ask(keeper, 404, parent="small", child="nobody")
    ask(keeper, 404, parent="hid", child="large")
    ask(keeper, user="ada", parent="hid", child="large")
    ask(keeper, 422, parent="small")
    ask(keeper, 422, parent="", child="large")
    assert b"known are child, parent" in ask(keeper, 422, parent="small", child="large", deep="yes")


def test_the_reply_is_described(keeper: Team) -> None:
    described = Application(keeper.coordinator, ServiceSettings()).routes.openapi()
    replies = described["paths"]["/v1/diff"]["get"]["responses"]
    schema = replies["200"]["content"]["application/json"]["schema"]
    assert set(schema["required"]) == {"parent", "child", "similarity", "plan", "counts", "rows"}
    assert "action" in schema["properties"]["rows"]["items"]["required"]
