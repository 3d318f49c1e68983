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
from tests.helpers.service import Team, network, tensors, told

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
    assert numbers["modelkeeper_models"] == numbers["modelkeeper_architectures"] == 1
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
    assert httpx.get(keeper.url + path).status_code == 200
