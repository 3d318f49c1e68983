"""Health: how busy it was and who goes next for administrators, integrity for those who may see it."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.server.serve import serving
from modelkeeper.server.ui.views import health
from modelkeeper.settings import ServiceSettings, Settings
from modelkeeper.zoo.records import Record
from tests.helpers.browsers import shot, tab
from tests.helpers.dashboards import keep_busy, served
from tests.helpers.service import team
from tests.helpers.zoos import net, register

HTML = {"accept": "text/html"}
TITLES = ["Queries", "Latency", "Errors", "Models"]


class Zoo:
    """A busy service without users, whose zoo is not quite full."""

    def __init__(self, coordinator: LocalCoordinator, url: str) -> None:
        self.coordinator, self.url = coordinator, url
        scores = (0.9, 0.5, 0.8, 0.85)
        self.models: list[Record] = [
            register(coordinator, net(8, 8 + number), f"net-{number}", score)
            for number, score in enumerate(scores)
        ]
        keep_busy(coordinator, 30, every=5)
        self.line = httpx.Client(base_url=url, headers=HTML)


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zoo]:
    with served(tmp_path_factory.mktemp("health"), capacity=10**6) as (local, url):
        found = Zoo(local, url)
        yield found
        found.line.close()


def test_who_goes_next_is_shown_without_asking(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    text = zoo.line.get("/ui/health").text
    assert "All fit today." in text
    used = zoo.coordinator.stats()["bytes"]
    foreseen = zoo.coordinator.foresee(int(used * (1 - health.SHARE)), health.NEXT)
    assert foreseen.leaving
    shown = text.partition("Next to go")[2].partition("If the capacity were")[0]
    for record, why in foreseen.leaving:
        assert f"/ui/models/{record.id}" in shown
        assert why.partition(":")[0] in shown
    assert zoo.coordinator.count() == len(zoo.models), "nothing was done"
    monkeypatch.setattr(health, "CROWD", 1)
    large = zoo.line.get("/ui/health").text
    assert "There are many models" in large
    [link] = [part.partition('"')[0] for part in large.split('href="') if "capacity=" in part[:40]]
    assert "First to go" in zoo.line.get(link).text


def test_lines_are_drawn_as_far_back_as_the_address_says(zoo: Zoo, browser: Browser) -> None:
    with tab(browser, zoo.url) as page:
        page.goto("/ui/health")
        page.wait_for_selector("#activity[data-ready]")
        expect(page.locator("#activity h3")).to_have_text(TITLES)
        expect(page.locator("#activity .plot canvas")).to_have_count(4)
        expect(page.get_by_role("link", name="Day", exact=True)).to_have_attribute("aria-current", "true")
        page.get_by_role("link", name="Week").click()
        page.wait_for_selector("#activity[data-ready]")
        assert "range=week" in page.url
        plot = page.get_by_role("group", name="queries per minute by UTC. warm, 0 at")
        plot.focus()
        page.keyboard.press("Home")
        expect(page.locator("#activity .chart-legend").first).to_contain_text("warm 0")
        shot(page, "health-week")


def test_a_service_that_nobody_asked_says_so(tmp_path: Path, browser: Browser) -> None:
    local = LocalCoordinator(Settings(home=str(tmp_path / "zoo")))
    with serving(local, ServiceSettings(port=0, auth=False)) as url, tab(browser, url) as page:
        page.goto("/ui/health?range=quarter")
        page.wait_for_selector("#activity[data-ready]")
        expect(page.get_by_text("Nobody asked anything in this time.")).to_be_visible()
        expect(page.get_by_text("Nothing was found damaged, repaired or left behind.")).to_be_visible()
        expect(page.get_by_role("heading", name="Next to go")).to_have_count(0)
    local.close()


def test_damage_is_told(zoo: Zoo) -> None:
    record = register(zoo.coordinator, net(4, 4), "to be damaged")
    [file] = Path(zoo.coordinator.settings.folder).rglob(f"{record.folder}/model.safetensors")
    file.write_bytes(file.read_bytes()[:-4] + b"\0\1\2\3")
    assert zoo.coordinator.gc(verify=True).damaged == (record.id,)
    text = zoo.line.get("/ui/health").text
    told = text.partition("<h2>Integrity</h2>")[2].partition("<h2>Refused lately</h2>")[0]
    assert "1 model is damaged" in told
    assert 'class="chip action-damaged"' in told
    assert f"/ui/models/{record.id}" in told


def test_how_busy_it_was_is_for_administrators(tmp_path: Path) -> None:
    with team(tmp_path, capacity=10**9) as keeper:
        for scope in ("admin", "read", "partner"):
            headers = {**HTML, "origin": keeper.url, "sec-fetch-site": "same-origin"}
            with httpx.Client(base_url=keeper.url, headers=headers) as line:
                line.post("/ui/login", data={"token": keeper.token(scope, scope)})
                page = line.get("/ui/health")
                assert page.status_code == 200
                assert ("How busy it was" in page.text) is (scope == "admin")
                reply = line.get("/ui/health.json?range=hour", headers={"accept": "application/json"})
                assert reply.status_code == (200 if scope == "admin" else 403)
                if scope == "admin":
                    assert [chart["title"] for chart in reply.json()["charts"]] == TITLES
                else:
                    assert "this needs the scope admin" in reply.json()["message"]
