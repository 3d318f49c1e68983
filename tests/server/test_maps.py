"""The map of a service: drawn in the background when somebody looks, renewed, and never in anybody's way."""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import StoreSilent
from modelkeeper.server import maps
from modelkeeper.server.app import Application
from modelkeeper.server.maps import Maps
from modelkeeper.server.serve import serving
from modelkeeper.settings import ServiceSettings, Settings
from modelkeeper.zoo.chart import UNIT, Chart
from modelkeeper.zoo.records import Viewer
from tests.helpers.generated import resnet, vgg
from tests.helpers.service import team, tensors, told
from tests.helpers.zoos import register


def ready(drawn: Maps, viewer: Viewer | None = None, points: int = 0) -> Chart:
    """What is shown when there is a map at last, with at least so many points."""
    end = time.monotonic() + 30
    while True:
        chart = drawn.look(viewer)
        if (chart.state == "ready" and len(chart.x) >= points) or time.monotonic() > end:
            assert chart.state == "ready"
            return chart
        time.sleep(0.01)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalCoordinator]:
    coordinator = LocalCoordinator(Settings(home=str(tmp_path / "zoo"), minimum_peers=10**6))
    for width in (4, 8, 12):
        register(coordinator, vgg((width, width)), f"vgg{width}")
    yield coordinator
    coordinator.close()


@contextlib.contextmanager
def drawing(local: LocalCoordinator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Maps]:
    monkeypatch.setattr(maps, "REST", 0.01)
    monkeypatch.setattr(maps, "RESTS", 0)
    drawn = Maps(local)
    with drawn.going_on():
        yield drawn


def test_a_map_is_drawn_when_somebody_looks_and_renewed_when_the_zoo_changes(
    local: LocalCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    with drawing(local, monkeypatch) as drawn:
        assert not drawn.drawn
        assert drawn.look(None) == Chart(state="drawing")
        first = ready(drawn)
        assert sorted(first.name) == ["vgg12", "vgg4", "vgg8"]
        register(local, resnet((1, 1), 8), "new")
        later = ready(drawn, points=4)
        assert later.mark != first.mark
        assert drawn.drawn
        inside = drawn.within(first.mark, -UNIT, -UNIT, UNIT, UNIT)  # of the map that is still open somewhere
        assert inside is not None
        assert len(inside) == 3
        assert drawn.within("00000000", -UNIT, -UNIT, UNIT, UNIT) is None
        place = later.name.index("new")
        corner = later.x[place], later.y[place]
        found = drawn.within(later.mark, corner[0] - 1, corner[1] - 1, corner[0] + 1, corner[1] + 1)
        assert found == (local.show("new").fingerprint,)


def test_nothing_is_drawn_for_nobody(local: LocalCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()
    monkeypatch.setattr(local, "survey", lambda *_, **__: asked.set())
    with drawing(local, monkeypatch) as drawn:
        assert not asked.wait(0.1)
        drawn.look(None)
        assert asked.wait(10)


def test_what_fails_or_takes_too_long_is_said_and_tried_again(
    local: LocalCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    survey, outcomes = local.survey, iter([StoreSilent("s", "no", "wait"), RuntimeError("strange"), None])
    states: list[str] = []

    def failing(*args: Any, **more: Any) -> Any:
        for outcome in outcomes:
            if outcome is None:
                return None
            raise outcome
        return survey(*args, **more)

    monkeypatch.setattr(local, "survey", failing)
    with drawing(local, monkeypatch) as drawn:
        end = time.monotonic() + 30
        while not states or states[-1] != "ready":
            assert time.monotonic() < end
            state = drawn.look(None).state
            if not states or states[-1] != state:
                states.append(state)
            time.sleep(0.001)
    assert states[-1] == "ready"
    assert set(states) <= {"drawing", "failed", "late", "ready"}
    assert len(states) > 2


def test_an_end_comes_while_it_is_drawn(local: LocalCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    began, ended = threading.Event(), threading.Event()

    def slow(*_: Any, stop: Any, **__: Any) -> None:
        began.set()
        while not stop():
            time.sleep(0.001)
        ended.set()

    monkeypatch.setattr(local, "survey", slow)
    with drawing(local, monkeypatch) as drawn:
        drawn.look(None)
        assert began.wait(10)
    assert ended.is_set()


def test_an_index_in_shards_has_no_map(local: LocalCoordinator) -> None:
    local.settings = msgspec.structs.replace(local.settings, shards=2)
    drawn = Maps(local)
    with drawn.going_on():
        assert drawn.look(None).state == "elsewhere"
        assert drawn.within("00000000", 0, 0, 1, 1) is None


def test_the_route_shows_what_each_may_see(tmp_path: Path) -> None:
    with team(tmp_path) as found:
        ann, bob = found.join("ann"), found.join("bob")
        graph = vgg((8, 8))
        for client, name, visibility in ((ann, "hers", "private"), (bob, "his", "public")):
            client.register(graph, told(name, visibility=visibility), tensors(graph).items())
        partner = found.accounts.add_token("bob", "partner")
        tokens = {
            "ann": found.accounts.add_token("ann", "read"),
            "bob": found.accounts.add_token("bob", "read"),
        }
        replies = {}
        for user, token in {**tokens, "partner": partner}.items():
            chart: dict[str, Any] = {"state": "drawing"}
            end = time.monotonic() + 30
            while chart["state"] == "drawing" and time.monotonic() < end:
                reply = httpx.get(f"{found.url}/v1/map", headers={"authorization": f"Bearer {token}"})
                chart = reply.raise_for_status().json()
            msgspec.json.decode(reply.content, type=Chart, strict=True)
            replies[user] = chart
        assert (replies["ann"]["models"], replies["bob"]["models"]) == ([2], [1])
        assert replies["bob"]["name"] == ["his"]
        assert replies["partner"]["name"] == []
        assert httpx.get(f"{found.url}/v1/map").status_code == 401
        stray = {"authorization": f"Bearer {tokens['bob']}"}
        assert httpx.get(f"{found.url}/v1/map?projet=x", headers=stray).status_code == 422


def test_its_schema_is_told(local: LocalCoordinator) -> None:
    told_of = Application(local, ServiceSettings()).routes.openapi()["paths"]["/v1/map"]["get"]
    schema = told_of["responses"]["200"]["content"]["application/json"]["schema"]
    assert set(schema["properties"]) == set(Chart.__struct_fields__)


def test_the_table_is_filtered_by_the_map(local: LocalCoordinator) -> None:
    with serving(local, ServiceSettings(port=0, auth=False)) as url, httpx.Client(base_url=url) as line:
        line.headers["accept"] = "text/html"
        mark = "0" * 8
        assert "is being drawn" in line.get(f"/ui/models?map={mark},0,0,1,1").text
        chart: dict[str, Any] = {"state": "drawing"}
        end = time.monotonic() + 30
        while chart["state"] != "ready" and time.monotonic() < end:
            chart = line.get("/ui/map.json").json()
        assert "was drawn anew" in line.get(f"/ui/models?map={mark},0,0,1,1").text
        place = chart["name"].index("vgg8")
        x, y = chart["x"][place], chart["y"][place]
        part = f"map={chart['mark']},{x + 1},{y + 1},{x - 1},{y - 1}"  # whichever corner comes first
        for address in (part, f"architecture={chart['id'][place]}"):
            shown = line.get(f"/ui/models?{address}").text
            assert "vgg8</bdi>" in shown
            assert "vgg4</bdi>" not in shown
            assert "1 model of this choice" in shown
            rows = line.get(f"/ui/models.csv?{address}").text
            assert "vgg8" in rows
            assert "vgg4" not in rows
        whole = f"{chart['mark']},{-UNIT},{-UNIT},{UNIT},{UNIT}"
        both = line.get("/ui/models", params={"map": whole, "architecture": chart["id"][place]}).text
        assert "1 model of this choice" in both
        assert "3 models of this choice" in line.get(f"/ui/models?map={whole}").text
        assert "is no part of the map" in line.get("/ui/models?map=here").text
        nobody = line.get(f"/ui/models?architecture={'0' * 16}").text
        assert "no model of these ids" in nobody
        assert "vgg4</bdi>" in nobody
