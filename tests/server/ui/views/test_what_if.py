"""What would I get: sliders in a real browser and without scripts, for whoever may see the model."""

import html
import json
import re
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, Route, expect

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.frontends.torch import describe
from modelkeeper.graph.repeats import stages
from modelkeeper.server.serve import serving
from modelkeeper.settings import ServiceSettings, Settings
from tests.helpers.browsers import shot, tab
from tests.helpers.dashboards import hostile, renamed
from tests.helpers.families import FAMILIES, INPUTS
from tests.helpers.service import Team, team, tensors, told
from tests.helpers.zoos import register

GRAPH, WIDE = (describe(FAMILIES["grouped"](width, 3), INPUTS["grouped"]) for width in (8, 16))
HTML = {"accept": "text/html"}


class Zoo:
    """A service without users, with a model of three blocks, one like it and a hostile one."""

    def __init__(self, coordinator: LocalCoordinator, url: str) -> None:
        self.coordinator, self.url = coordinator, url
        self.model = register(coordinator, GRAPH, "middle", task="c", data="d")
        self.like = register(coordinator, WIDE, "wide", task="c", data="d")
        self.hostile = register(coordinator, renamed(GRAPH), hostile(1), task=hostile(0), data=hostile(2))

    def hits(self) -> int:
        return sum(record.hits for record in self.coordinator.models())


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zoo]:
    home = tmp_path_factory.mktemp("what-if") / "zoo"
    local = LocalCoordinator(Settings(home=str(home), minimum_peers=10**6))
    with serving(local, ServiceSettings(port=0, auth=False)) as url:
        yield Zoo(local, url)
    local.close()


def test_sliders_work_without_scripts(zoo: Zoo, browser: Browser) -> None:
    with tab(browser, zoo.url, java_script_enabled=False) as page:
        page.goto(f"/ui/what-if?model={zoo.model.name}")
        lead = page.locator("#answer .lead")
        expect(lead).to_have_text("It would start from wide.")  # as it is: anybody but itself
        page.get_by_role("slider", name="Width").focus()
        page.keyboard.press("ArrowRight")
        page.get_by_role("slider", name="Blocks").focus()
        page.keyboard.press("ArrowRight")
        page.get_by_role("button", name="Ask at this size").click()
        assert "width=1.05&blocks=4" in page.url
        expect(lead).to_contain_text("It would start from")
        expect(page.get_by_role("slider", name="Blocks")).to_have_value("4")
        expect(page.locator("#then")).to_contain_text(f"{len(GRAPH.layers) + stages(GRAPH)[0].period} layers")
    assert zoo.hits() == 0


@pytest.mark.parametrize("width", [1280, 360])
def test_sliders_ask_while_they_move(zoo: Zoo, browser: Browser, width: int) -> None:
    with tab(browser, zoo.url, viewport={"width": width, "height": 900}) as page:
        page.goto(f"/ui/what-if?model={zoo.model.id}&width=2&blocks=3")
        lead, then = page.locator("#answer .lead"), page.locator("#then")
        expect(lead).to_have_text("It would start from wide.")
        expect(page.locator("#answer")).to_contain_text("exact: before any training")
        before = then.inner_text()
        with page.expect_response("**/ui/what-if.json") as reply:
            page.get_by_role("slider", name="Width").fill("1.5")
        expect(page.get_by_label("Width").locator("xpath=../output")).to_have_text("1.5 ×")
        asked = json.loads(reply.value.request.post_data or "")
        assert (asked["width"], asked["blocks"]) == (1.5, [3])
        expect(then).not_to_have_text(before)
        expect(page.locator("#answer")).to_have_attribute("aria-busy", "false")
        assert page.url.endswith(f"?model={zoo.model.id}&width=1.5&blocks=3")
        expect(lead).to_contain_text("It would start from middle")  # changed, it may borrow from itself
        expect(page.get_by_role("region", name="Runners-up")).to_contain_text("wide")
        page.get_by_text("What keeps its width").click()
        assert page.locator(".fixed li").count() > 0
        wide, room = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide <= room
        shot(page, f"what-if-sliders-{width}")
        said = then.inner_text(), lead.inner_text()
        page.reload()  # the address is the answer
        assert (then.inner_text(), lead.inner_text()) == said
    assert zoo.hits() == 0


def test_an_answer_that_was_overtaken_is_forgotten(zoo: Zoo, browser: Browser) -> None:
    held: list[Route] = []
    with tab(browser, zoo.url) as page:
        page.goto(f"/ui/what-if?model={zoo.model.id}")
        page.route("**/ui/what-if.json", lambda route: held.append(route) if not held else route.continue_())
        slider = page.get_by_role("slider", name="Width")
        with page.expect_request("**/ui/what-if.json"):
            slider.fill("4")
        expect(page.locator("#answer")).to_have_attribute("aria-busy", "true")
        expect(page.locator("#busy")).to_have_text("Searching…")
        with page.expect_request_finished(lambda asked: asked.url.endswith(".json")):
            slider.fill("1")
        expect(page.locator("#busy")).to_have_text("")
        expect(page.locator("#answer .lead")).to_have_text("It would start from wide.")
        assert held[0].request.failure == "net::ERR_ABORTED"


def test_hostile_models_have_sliders_like_others(zoo: Zoo, browser: Browser) -> None:
    with tab(browser, zoo.url, viewport={"width": 360, "height": 800}) as page:
        page.goto(f"/ui/what-if?model={zoo.hostile.id}")
        with page.expect_response("**/ui/what-if.json"):
            page.get_by_role("slider", name="Width").fill("2")
        expect(page.locator("#answer .lead")).to_contain_text(hostile(1))
        wide, room = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide <= room


def test_what_cannot_be_is_said(zoo: Zoo) -> None:
    with httpx.Client(base_url=zoo.url, headers=HTML) as line:
        for sizes, words in (
            ("width=9", "a factor from 0.25 to 4"),
            ("width=wide", "a factor like 1.5"),
            ("blocks=0", "say 1 to 12"),
            ("blocks=1,1,1,1,1,1", "the model has"),
            ("blocks=%3Cb%3E", "numbers like 6,4"),
        ):
            reply = line.get(f"/ui/what-if?model={zoo.model.id}&{sizes}")
            assert reply.status_code == 200
            told_so = re.search(r'<p class="problem" role="alert"><bdi>(.*?)</bdi>', reply.text)
            assert told_so, sizes
            assert words in html.unescape(told_so[1])
            assert 'name="width"' in reply.text  # the sliders are there to try again
        body = {"model": zoo.model.id, "blocks": [10**9]}
        own = {"origin": zoo.url, "sec-fetch-site": "same-origin"}
        assert line.post("/ui/what-if.json", json=body, headers=own).status_code == 422


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with team(tmp_path_factory.mktemp("rights")) as found:
        yield found


def test_only_who_may_see_a_model_may_resize_it(keeper: Team) -> None:
    ada = keeper.join("ada")
    mine = ada.register(GRAPH, told("secret", visibility="private"), tensors(GRAPH).items()).record
    seen = {}
    for user in ("ada", "eve"):
        with httpx.Client(base_url=keeper.url, headers=HTML) as line:
            own = {"origin": keeper.url, "sec-fetch-site": "same-origin"}
            line.post("/ui/login", data={"token": keeper.token(user), "to": "/ui/log"}, headers=own)
            text = line.get(f"/ui/what-if?model={mine.id}&width=2").text
            body = {"model": mine.id, "width": 2.0}
            status = line.post("/ui/what-if.json", json=body, headers=own).status_code
            seen[user] = ('id="sizes"' in text, "secret" in text, status)
    assert seen == {"ada": (True, True, 200), "eve": (False, False, 404)}
