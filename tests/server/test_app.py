"""The API by its own description: whatever is sent, the service does not fail, and it counts what it did."""

import re
from typing import Any

import httpx
import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error

from modelkeeper.coordinator.wire import SAFETENSORS
from modelkeeper.errors import NotAllowed
from modelkeeper.meta import Query
from modelkeeper.server.app import Application
from modelkeeper.settings import ServiceSettings
from modelkeeper.zoo.records import Filter
from modelkeeper.zoo.restriction import Restriction
from tests.helpers.service import Team, network, probe, tensors, told

GRAPH = network()
EXAMPLES = 8  # for each operation


def test_nothing_that_fits_the_description_makes_it_fail(keeper: Team) -> None:
    admin = keeper.join("root", "admin", rate=1e6)
    admin.register(GRAPH, told(), tensors(GRAPH).items())
    token = {"authorization": f"Bearer {keeper.token('root', 'admin')}"}
    schema = schemathesis.openapi.from_url(f"{keeper.url}/openapi.json", headers=token)
    operations = list(schema.get_all_operations())
    assert len(operations) >= 20
    chosen = settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    for found in operations:
        operation = found.ok()  # type: ignore[union-attr]  # an error would raise here

        @chosen
        @given(case=operation.as_strategy())
        def send(case: schemathesis.Case[Any]) -> None:
            case.call_and_validate(headers=token, checks=[not_a_server_error])

        send()


def test_the_numbers_tell_what_happened(keeper: Team) -> None:
    ada = keeper.join("ada")
    asked = Query(data="digits", task="classification")
    ada.query(GRAPH, asked)
    record = ada.register(GRAPH, told(), tensors(GRAPH).items()).record
    dict(ada.query(GRAPH, asked).weights())
    ada.query(GRAPH, asked, dry_run=True, runners_up=True)  # as `explain` asks: it starts nothing
    scraper = {"authorization": f"Bearer {keeper.token('prometheus', 'metrics')}"}
    text = httpx.get(f"{keeper.url}/metrics", headers=scraper).text
    numbers = {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line[0] != "#"
    }
    assert numbers['modelkeeper_queries_total{result="cold"}'] == 1
    assert numbers['modelkeeper_queries_total{result="warm"}'] == 1
    assert numbers["modelkeeper_similarity_count"] == 1
    assert numbers["modelkeeper_registered_total"] == 1
    assert numbers["modelkeeper_zoo_models"] == numbers["modelkeeper_zoo_architectures"] == 1
    assert numbers["modelkeeper_evictions_total"] == 0
    assert numbers['modelkeeper_request_seconds_count{route="/query"}'] == 3
    assert numbers["modelkeeper_zoo_bytes"] == record.bytes
    assert numbers['modelkeeper_bytes_total{direction="in"}'] == record.bytes
    assert numbers['modelkeeper_query_seconds_count{stage="search"}'] == 2
    assert numbers['modelkeeper_requests_total{method="POST",route="/query",status="200"}'] == 3
    assert not [
        name for name in numbers if "0123456789" in name or record.id in name
    ]  # no label grows without end


def test_the_description_names_what_travels(keeper: Team) -> None:
    described = Application(keeper.coordinator, ServiceSettings()).routes.openapi()
    body = described["paths"]["/v1/query"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(body["required"]) == {"graph"}
    assert "minimum_similarity" in body["properties"]["query"]["properties"]
    assert described["info"]["title"] == "ModelKeeper"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/version"])
def test_probes_need_no_token(keeper: Team, path: str) -> None:
    if path == "/readyz":
        probe(keeper.url)
    assert httpx.get(keeper.url + path).status_code == 200


def operations(described: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """Method, path and description of every route."""
    return [(method, path, said) for path, by in described["paths"].items() for method, said in by.items()]


def test_every_route_says_what_it_replies(keeper: Team) -> None:
    """Of each 2xx reply the media type, and what is in it; 204 is nothing."""
    empty, streams = [], []
    for method, path, said in operations(Application(keeper.coordinator, ServiceSettings()).routes.openapi()):
        for status, told_of in said["responses"].items():
            kinds = told_of.get("content", {})
            if not status.startswith("2") or (status == "204" and not kinds):
                continue
            for kind, content in kinds.items():
                if content.get("schema") in (None, {}, {"type": "object"}):
                    empty.append(f"{method} {path} {status} {kind}")
            if not kinds:
                empty.append(f"{method} {path} {status}")
            if set(kinds) != {"application/json"}:
                streams.append((path, status, *kinds))
    assert empty == []
    assert streams == [
        (path, status, SAFETENSORS)
        for path in ("/v1/weights", "/v1/models/{model}/model.safetensors")
        for status in ("200", "206")
    ] + [("/metrics", "200", "text/plain")]


def test_replies_are_what_the_description_says(keeper: Team) -> None:
    """Whatever can be asked for without a body, of a zoo with two models."""
    admin = keeper.join("root", "admin", rate=1e6)
    record = admin.register(GRAPH, told(), tensors(GRAPH).items()).record
    child = admin.register(GRAPH, told("child", parent=record.id), tensors(GRAPH, 1).items()).record
    admin.query(GRAPH, Query(data="digits", task="classification"))
    token = {"authorization": f"Bearer {keeper.token('root', 'admin')}"}
    described = Application(keeper.coordinator, ServiceSettings()).routes.openapi()
    probe(keeper.url)
    given = {"name": "child", "capacity": "1", "parent": record.id, "child": child.id}
    looked = 0
    for method, path, said in operations(described):
        schema = said["responses"].get("200", {}).get("content", {}).get("application/json", {}).get("schema")
        if method != "get" or schema is None:
            continue
        needed = {each["name"] for each in said.get("parameters", ()) if each["required"]} - {"model"}
        if not needed <= given.keys():  # users, projects and keys: see tests/server/routes
            continue
        asked = {name: given[name] for name in needed}
        reply = httpx.get(keeper.url + path.replace("{model}", record.id), params=asked, headers=token)
        if path == "/v1/uploads/{model}":
            assert reply.status_code == 404
            continue
        assert reply.status_code == 200, (path, reply.text)
        jsonschema_rs.validate(schema, reply.json())
        looked += 1
    assert looked > 20


def test_a_parameter_that_is_not_there_is_refused(keeper: Team) -> None:
    token = {"authorization": f"Bearer {keeper.token('root', 'admin')}"}
    described = Application(keeper.coordinator, ServiceSettings()).routes.openapi()
    walked = 0
    for method, path, _ in operations(described):
        if not path.startswith("/v1/"):  # probes and scrapers may say more than they are asked
            continue
        address = re.sub(r"\{key\}", "0" * 64, path)
        address = keeper.url + re.sub(r"\{[a-z]+\}", "0123456789abcdef", address)
        reply = httpx.request(method, f"{address}?proyect=x", headers=token)
        assert (reply.status_code, reply.json()["code"]) == (422, "invalid_meta"), (path, reply.text)
        assert "'proyect'" in reply.json()["message"], (path, reply.text)
        walked += 1
    assert walked > 40
    known = httpx.get(f"{keeper.url}/v1/models?projct=vision", headers=token).json()["message"]
    assert "project" in known


def test_models_are_turned_page_by_page(keeper: Team) -> None:
    """From model to model, in any order and both ways; a model that comes meanwhile shifts nothing."""
    ada = keeper.join("ada")
    records = [
        ada.register(GRAPH, told(f"net-{number}", 0.5 + number / 100), tensors(GRAPH, number).items()).record
        for number in range(5)
    ]
    token = {"authorization": f"Bearer {keeper.accounts.add_token('ada', 'read')}"}

    def ask(status: int = 200, **asked: Any) -> Any:
        reply = httpx.get(f"{keeper.url}/v1/models", params={"order": "-value", **asked}, headers=token)
        assert reply.status_code == status, reply.text
        return [record["name"] for record in reply.json()] if status == 200 else reply.json()["code"]

    first = ask(limit=2)
    assert first == ["net-4", "net-3"]
    ada.register(GRAPH, told("net-9", 0.9), tensors(GRAPH, 9).items())
    assert ask(limit=2, after=records[3].id) == ["net-2", "net-1"]
    assert ask(limit=2, after=records[1].id) == ["net-0"]
    assert ask(limit=2, before=records[2].id) == first
    assert ask(limit=2, offset=2) == ["net-3", "net-2"]  # as older clients ask
    assert ask(422, after=records[1].id, offset=1) == "invalid_meta"
    assert ask(422, after=records[1].id, before=records[3].id) == "invalid_meta"
    assert ask(422, after="net-1") == "invalid_meta"
    assert ask(404, after="0123456789abcdef") == "unknown_model"
    bob = keeper.join("bob")
    private = bob.register(GRAPH, told("his", visibility="private"), tensors(GRAPH, 7).items()).record
    assert ask(404, after=private.id) == "unknown_model"


def test_all_models_are_listed_by_cursor(keeper: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modelkeeper.coordinator.remote.coordinator.MAX_LISTED", 2)
    ada = keeper.join("ada")
    names = [f"net-{number}" for number in range(5)]
    for number, name in enumerate(names):
        ada.register(GRAPH, told(name), tensors(GRAPH, number).items())
    asked: list[dict[str, Any]] = []
    ask = ada._calls.ask

    def watch(*call: Any, **more: Any) -> Any:
        asked.append(more["params"])
        return ask(*call, **more)

    monkeypatch.setattr(ada._calls, "ask", watch)
    assert [record.name for record in ada.models(order="name")] == names
    assert [("offset" in params, "after" in params) for params in asked] == [(True, False)] + 2 * [
        (False, True)
    ]
    assert [record.name for record in ada.models(order="-name", offset=1, limit=3)] == names[3:0:-1]


def test_what_another_capacity_would_mean(keeper: Team) -> None:
    admin, ada = keeper.join("root", "admin"), keeper.join("ada")
    records = [
        ada.register(GRAPH, told(f"net-{number}"), tensors(GRAPH, number).items()).record
        for number in range(3)
    ]
    foreseen = admin.foresee(records[0].bytes, 50)
    assert (foreseen.models, foreseen.bytes, len(foreseen.leaving)) == (2, 2 * records[0].bytes, 2)
    assert all(why for _, why in foreseen.leaving)
    assert foreseen == keeper.coordinator.foresee(records[0].bytes, 50)
    assert len(admin.foresee(records[0].bytes, 1).leaving) == 1
    with pytest.raises(NotAllowed):
        ada.foresee(records[0].bytes, 50)


def test_models_are_found_by_size_score_and_project(keeper: Team) -> None:
    ada = keeper.join("ada")
    keeper.accounts.add_project("vision", ["ada"])
    small, large = network(4), network(16)
    ids = {}
    for name, graph, accuracy, more in (
        ("small", small, 0.5, {"visibility": "public"}),
        ("large", large, 0.9, {"project": "vision"}),
    ):
        ids[name] = ada.register(graph, told(name, accuracy, **more), tensors(graph).items()).record
    between = ids["small"].bytes + 1

    def names(**wanted: Any) -> list[str]:
        return [record.name for record in ada.models(Filter(**wanted))]

    assert names(least_bytes=between) == ["large"]
    assert names(most_bytes=between) == ["small"]
    assert names(least_value=0.6) == ["large"]
    assert names(most_value=0.6, least_value=0.5) == ["small"]
    assert names(restrictions=(Restriction(projects=("vision",)),)) == ["large"]


def test_a_report_over_http_reads_as_one_at_home(keeper: Team) -> None:
    ada = keeper.join("ada")
    ada.register(GRAPH, told(), tensors(GRAPH).items())
    wanted, wide = Query(data="digits", task="classification"), network(16)
    far = ada.query(wide, wanted).answer
    near = keeper.coordinator.query(wide, wanted, dry_run=True).answer
    rows = [line for line in str(far).splitlines() if line.startswith("│")]
    assert rows
    assert rows == [line for line in str(near).splitlines() if line.startswith("│")]
    assert not [cell for row in rows for cell in row.split("│")[2:-2] if "." in cell]  # but for percents


def test_who_asks_is_told_who_they_are(keeper: Team) -> None:
    ada = keeper.join("ada", models=7)
    keeper.accounts.add_project("vision", ["ada"])
    record = ada.register(GRAPH, told(), tensors(GRAPH).items()).record
    token = {"authorization": f"Bearer {keeper.accounts.add_token('ada', 'read')}"}
    me = httpx.get(f"{keeper.url}/v1/me", headers=token).json()
    assert (me["user"], me["scope"], me["projects"]) == ("ada", "read", ["vision"])
    assert (me["models"], me["bytes"], me["most_models"]) == (1, record.bytes, 7)


def test_the_log_goes_on_where_a_reply_ended(keeper: Team) -> None:
    ada = keeper.join("ada")
    for number in range(5):
        ada.register(GRAPH, told(f"net-{number}"), tensors(GRAPH, number).items())
    token = {"authorization": f"Bearer {keeper.token('root', 'admin')}"}
    found: list[str] = []
    before = ""
    while True:
        asked = f"{keeper.url}/v1/log?limit=2&action=registered{before}"
        events = httpx.get(asked, headers=token).json()
        if not events:
            break
        found += [event["detail"].partition(":")[0] for event in events]
        before = f"&before={events[-1]['number']}"
    assert found == [f"net-{number}" for number in reversed(range(5))]
    assert httpx.get(f"{keeper.url}/v1/log?user=nobody", headers=token).json() == []


def test_the_description_says_what_is_replied(keeper: Team) -> None:
    described = Application(keeper.coordinator, ServiceSettings()).routes.openapi()["paths"]

    def said(path: str) -> Any:
        return described[path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]

    assert "fingerprint" in said("/v1/models")["items"]["properties"]
    assert "descendants" in said("/v1/models/{model}/tree")["properties"]
    assert "most_bytes" in said("/v1/me")["properties"]
    assert "$ref" not in str([said(path) for path in ("/v1/models", "/v1/models/{model}/tree", "/v1/log")])
    assert not [path for path in described if path.startswith("/ui")]
