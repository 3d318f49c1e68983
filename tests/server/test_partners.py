"""What do partners of other organisations see of a zoo? What was published, on every route, and no more."""

import json

import httpx
import pytest

from modelkeeper.errors import InvalidMeta, NotAllowed, UnknownModel
from modelkeeper.graph import to_json
from modelkeeper.meta import Query
from tests.helpers.service import Team, network, tensors, told

GRAPH = network()
ASKED = Query(data="digits", task="classification")


def test_publishing_is_the_owners_and_needs_a_licence(keeper: Team) -> None:
    ada, bob, admin = keeper.join("ada"), keeper.join("bob"), keeper.join("root", "admin")
    bare = ada.register(GRAPH, told("bare", visibility="public"), tensors(GRAPH).items()).record
    with pytest.raises(InvalidMeta, match="licence"):
        ada.publish(bare.id)
    model = ada.register(
        GRAPH, told("net", visibility="public", licence="MIT"), tensors(GRAPH, 1).items()
    ).record
    assert not model.published
    with pytest.raises(NotAllowed, match="belongs to ada"):
        bob.publish(model.id)
    with pytest.raises(NotAllowed, match="scope write"):
        keeper.join("carl", "read").publish(model.id)
    assert ada.publish(model.id).published
    assert not admin.publish(model.id, False).published
    assert [event.action for event in admin.log(model=model.id)][:2] == ["unpublished", "published"]


def test_a_partner_sees_what_was_published_and_nothing_else(keeper: Team) -> None:
    """A hidden parent and twin, near names, counts, the log: none of it tells what else there is."""
    ada, partner = keeper.join("ada"), keeper.join("eve", "partner")
    hidden = ada.register(
        GRAPH, told("hidden-parent", 0.99, visibility="public", tags=["merger"]), tensors(GRAPH).items()
    ).record
    more = {"visibility": "private", "licence": "MIT", "parent": hidden.id}
    open_ = ada.register(GRAPH, told("open", 0.5, **more), tensors(GRAPH, 1).items()).record
    with pytest.raises(UnknownModel):
        partner.show(open_.id)
    assert partner.count() == 0
    assert partner.query(GRAPH, ASKED).answer.cold
    ada.publish(open_.id)
    assert ada.query(GRAPH, ASKED).answer.parent
    with httpx.Client(
        base_url=keeper.url + "/v1", headers={"authorization": partner_header(partner)}
    ) as line:
        replies = {
            path: line.get(path).text
            for path in (
                "/models",
                "/models?state=active&state=removed&order=-hits",
                "/count",
                "/stats",
                "/log",
                "/find?name=open",
                "/find?name=hidden-parenX",
                f"/find?name={hidden.id}",
                *(f"/models/{open_.id}{part}" for part in ("", "/tree", "/graph", "/program", "/signature")),
                *(f"/models/{hidden.id}{part}" for part in ("", "/tree", "/graph", "/model.safetensors")),
                f"/log?model={hidden.id}",
            )
        }
        body = {"graph": json.loads(to_json(GRAPH)), "query": {"tags": ["mergers"]}, "runners_up": True}
        replies["query"] = line.post("/query", json=body).text
        body = {"graph": json.loads(to_json(GRAPH)), "parent": hidden.id}
        assert line.post("/weights", json=body).status_code == 404
        assert line.post("/uploads", json={}).status_code == 403
        assert line.delete(f"/models/{open_.id}").status_code == 403
        for closed in (f"/models/{open_.id}/credit", f"/models/{open_.id}/evidence", "/keys", "/audit"):
            assert line.get(closed).status_code == 403, closed
        assert line.post(f"/models/{open_.id}/outcomes", json={}).status_code == 403
        assert httpx.get(keeper.url + "/metrics", headers=dict(line.headers)).status_code == 403
    for path, text in replies.items():
        asked_for = hidden.id in path
        assert "hidden-parent" not in text.replace("hidden-parenX", ""), path
        assert asked_for or hidden.id not in text, path
        assert '"merger"' not in text, path
    assert partner.count() == 1
    seen = partner.show(open_.id)
    assert (seen.parent, seen.twin, seen.hits, seen.owner_id) == ("", "", 0, "")
    assert partner.stats()["models"] == 1
    assert partner.stats()["hits"] == 0
    assert partner.log() == [], "what others do with it is not theirs to know"
    answer = partner.query(GRAPH, ASKED).answer
    assert (answer.parent, answer.considered) == (open_.id, 1)
    assert [event.user for event in partner.log()] == ["eve"]
    ada.publish(open_.id, False)
    assert partner.count() == 0


def partner_header(partner: object) -> str:
    return f"Bearer {partner._token}"  # type: ignore[attr-defined]
