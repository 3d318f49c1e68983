"""The API by its own description: whatever is sent, the service does not fail, and it counts what it did."""

from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error

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
    assert numbers['modelkeeper_request_seconds_count{route="/query"}'] == 2
    assert numbers["modelkeeper_zoo_bytes"] == record.bytes
    assert numbers['modelkeeper_bytes_total{direction="in"}'] == record.bytes
    assert numbers['modelkeeper_query_seconds_count{stage="search"}'] == 2
    assert numbers['modelkeeper_requests_total{method="POST",route="/query",status="200"}'] == 2
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


def test_a_parameter_that_is_not_there_is_refused(keeper: Team) -> None:
    token = {"authorization": f"Bearer {keeper.token('typo')}"}
    for path in ("/v1/models?projct=vision", "/v1/count?tags=a", "/v1/log?offset=3", "/v1/stats?task=a"):
        reply = httpx.get(keeper.url + path, headers=token)
        assert reply.status_code == 422
        assert path.partition("?")[2].partition("=")[0] in reply.json()["message"]
    known = httpx.get(f"{keeper.url}/v1/models?projct=vision", headers=token).json()["message"]
    assert "project" in known


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
