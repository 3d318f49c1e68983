"""Two models side by side in a real browser: wires, what becomes of a layer, what widens with a space."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest
from playwright.sync_api import Browser, Page, expect

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.frontends.torch import describe
from modelkeeper.graph import Graph
from modelkeeper.server.comparisons import compare
from modelkeeper.server.serve import serving
from modelkeeper.server.ui import details
from modelkeeper.settings import ServiceSettings, Settings
from modelkeeper.zoo.records import Record
from tests.helpers.browsers import shot, tab
from tests.helpers.dashboards import hostile, renamed
from tests.helpers.families import FAMILIES, INPUTS
from tests.helpers.generated import Builder, Edge, inception
from tests.helpers.service import team, tensors, told
from tests.helpers.zoos import register

SMALL, MIDDLE, LARGE = (
    describe(FAMILIES["residual"](width, 12), INPUTS["residual"]) for width in (8, 12, 16)
)
DOTS = "svg => [...svg.querySelectorAll('circle')].map((dot) => Number(dot.getAttribute('cx')))"


def tangled(lines: int) -> Graph:
    """Many layers whose outputs are all used at the end alone."""
    b = Builder()
    first = b.add("input")
    ends = [b.conv(first, 4, 3, norm=False) for _ in range(lines)]
    last = ends[0]
    for other in ends[1:]:
        last = b.add("add", last, other)
    b.add("output", Edge(last))
    return b.graph()


class Zoo:
    """A service without users, with pairs of models."""

    def __init__(self, local: LocalCoordinator, url: str) -> None:
        self.local, self.url = local, url
        self.small = register(local, SMALL, "small", task="c", data="d")
        self.large = register(local, LARGE, "large", task="c", data="d")
        register(local, MIDDLE, "middle", task="c", data="d")
        self.branched = register(local, inception(3), "branched", task="c", data="d")
        self.tangled = register(local, tangled(20), "tangled", task="c", data="d")
        names = itertools.count()
        layers = tuple(
            msgspec.structs.replace(
                layer,
                tensors=tuple(
                    msgspec.structs.replace(tensor, name=f"{hostile(next(names), 100)} {tensor.name}")
                    for tensor in layer.tensors
                ),
            )
            for layer in renamed(LARGE).layers
        )
        evil = msgspec.structs.replace(LARGE, layers=layers)
        self.hostile = register(local, evil, hostile(1), task=hostile(0), data=hostile(2))

    def address(self, parent: Record, child: Record) -> str:
        return f"/ui/diff?parent={parent.id}&child={child.id}"


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zoo]:
    home = tmp_path_factory.mktemp("diff") / "zoo"
    local = LocalCoordinator(Settings(home=str(home), minimum_peers=10**6))
    with serving(local, ServiceSettings(port=0, auth=False)) as url:
        yield Zoo(local, url)
    local.close()


def ready(page: Page, address: str) -> None:
    page.goto(address)
    page.wait_for_selector("#diff[data-ready]")


@pytest.mark.parametrize(("light", "width"), [("light", 1280), ("dark", 1280), ("light", 360)])
def test_wires_run_beside_the_layers(zoo: Zoo, browser: Browser, light: str, width: int) -> None:
    look = {"color_scheme": light, "viewport": {"width": width, "height": 900}}
    with tab(browser, zoo.url, **look) as page:
        ready(page, zoo.address(zoo.branched, zoo.branched))
        rows = page.locator("#diff-rows .row:not(.fold)")
        pictures = rows.first.locator("svg.wires")
        expect(pictures).to_have_count(2)
        lanes = {x for at in range(14) for x in rows.nth(at).locator("svg.wires").last.evaluate(DOTS)}
        assert len(lanes) == 3  # of four branches, the last is not reached yet
        expect(page.locator("#diff-wires")).to_be_hidden()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        shot(page, f"diff-wires-{light}-{width}")
        page.get_by_label("only what changes").check()
        expect(page.locator("#diff-rows")).to_have_class("virtual diff no-wires")


def test_folds_keep_the_wires_that_pass(zoo: Zoo, browser: Browser) -> None:
    with tab(browser, zoo.url) as page:
        ready(page, zoo.address(zoo.small, zoo.large))
        fold = page.locator(".fold").first
        expect(fold).to_contain_text("more times")
        expect(fold.locator("svg.wires")).to_have_count(2)
        assert fold.locator("path.hidden").count() == 2  # a shortcut ends in there, another begins
        shot(page, "diff-folded-wires")
        fold.get_by_role("button").click()
        expect(page.locator("#diff-rows path.hidden")).to_have_count(0)


def test_wires_that_are_too_many_are_thinned_and_it_is_said(zoo: Zoo, browser: Browser) -> None:
    with tab(browser, zoo.url) as page:
        ready(page, zoo.address(zoo.tangled, zoo.tangled))
        expect(page.locator("#diff-wires")).to_contain_text("more wires are left out")
        widest = page.locator("#diff-rows svg.wires").first.bounding_box()
        assert widest is not None
        assert widest["width"] < 100
        shot(page, "diff-thinned")


@pytest.mark.parametrize("width", [1280, 360])
def test_a_layer_is_told_axis_by_axis(zoo: Zoo, browser: Browser, width: int) -> None:
    found = compare(SMALL, LARGE, same_task=True, seconds=60)
    with tab(browser, zoo.url, viewport={"width": width, "height": 900}) as page:
        ready(page, zoo.address(zoo.small, zoo.large))
        page.locator("#diff-rows .row").nth(1).click()
        detail = page.locator("#diff-detail")
        tensor = details.layer(found, 1)["tensors"][0]
        expect(detail.locator("tbody tr").first).to_contain_text(" → ".join(tensor["shapes"]))
        expect(detail.locator(".axes li").first).to_contain_text("out 8 → 16 widened")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        shot(page, f"diff-detail-{width}", full_page=True)


def test_every_layer_that_widens_with_a_space_is_marked(zoo: Zoo, browser: Browser) -> None:
    found = compare(SMALL, LARGE, same_task=True, seconds=60)
    axes = details.layer(found, 1)["tensors"][0]["axes"]
    space = details.space(found, "child", axes[0]["spaces"][0])
    with tab(browser, zoo.url) as page:
        ready(page, zoo.address(zoo.small, zoo.large))
        page.locator("#diff-rows .row").nth(1).click()
        button = page.locator(".axes button").first
        before = page.locator("#diff-map").screenshot()
        button.click()
        together = page.locator(".space-of")
        expect(together).to_contain_text(f"{len(space['rows'])} layers have space")
        expect(together).to_contain_text("16 units, from 8 of the lender")
        expect(page.locator("#diff")).to_have_attribute("data-bound", str(len(space["rows"])))
        assert page.locator("#diff-rows .row.bound").count() > 3
        expect(page.locator("#diff-rows .fold").first).to_have_class("row fold bound")  # it hides some
        assert page.locator("#diff-map").screenshot() != before
        expect(button).to_have_attribute("aria-pressed", "true")
        last = together.get_by_role("button").last
        name = space["layers"][-1]["name"]
        expect(last).to_contain_text(name)
        shot(page, "diff-space", full_page=True)
        last.click()  # it is brought into view, out of its fold if need be
        expect(page.locator("#diff-rows .row.at")).to_contain_text(name)
        button.click()
        expect(page.locator("#diff-rows .row.bound")).to_have_count(0)
        expect(together).to_be_hidden()


def test_hostile_names_are_but_text(zoo: Zoo, browser: Browser) -> None:
    with tab(browser, zoo.url, viewport={"width": 360, "height": 900}) as page:
        ready(page, zoo.address(zoo.large, zoo.hostile))
        for at in (1, 2, 3):
            page.locator("#diff-rows .row").nth(at).click()
            expect(page.locator("#diff-detail tbody tr").first).to_be_visible()
        page.locator(".axes button").first.click()
        expect(page.locator(".space-of li").first).to_be_visible()
        assert page.locator("#diff-detail :is(script, img, svg, style)").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        shot(page, "diff-hostile-detail", full_page=True)


def test_losers_of_an_explanation_stand_beside_the_model(zoo: Zoo, browser: Browser) -> None:
    with tab(browser, zoo.url) as page:
        page.goto(f"/ui/what-if?model={zoo.large.id}")
        rival = page.locator("#answer .rows a.go").first
        address = rival.get_attribute("href") or ""
        assert address.endswith(f"child={zoo.large.id}")
        rival.click()
        page.wait_for_selector("#diff[data-ready]")
        expect(page.get_by_label("Borrows")).to_have_value(zoo.large.id)


def test_a_model_at_another_size_is_compared(zoo: Zoo, browser: Browser) -> None:
    with tab(browser, zoo.url) as page:
        page.goto(f"/ui/what-if?model={zoo.large.id}&width=1.5&blocks=14")
        page.get_by_role("slider", name="Width").fill("2")
        page.wait_for_function("document.querySelector('#then').value.includes('parameters')")
        link = page.get_by_role("link", name="Layer against layer")
        expect(link).to_have_attribute(
            "href", f"/ui/diff?parent={zoo.large.id}&child={zoo.large.id}&width=2&blocks=14"
        )
        link.click()
        page.wait_for_selector("#diff[data-ready]")
        expect(page.locator("main")).to_contain_text("as it would be at another size, width 2 ×, blocks 14")
        expect(page.locator("#diff-legend")).to_contain_text("widened")
        page.locator("#diff-rows .row").nth(1).click()
        expect(page.locator("#diff-detail .axes li").first).to_contain_text("16 → 32 widened")


def test_the_page_asks_no_more_than_it_shows(zoo: Zoo) -> None:
    asked = f"parent={zoo.small.id}&child={zoo.large.id}"
    with httpx.Client(base_url=zoo.url, headers={"accept": "application/json"}) as line:
        assert (
            "running_mean" not in line.get(f"/ui/diff.json?{asked}").text
        )  # tensors are told when asked for
        for bad in ("row=100000", "row=-1", "row=x", ""):
            assert line.get(f"/ui/diff/layer.json?{asked}&{bad}").status_code == 422
        for bad in ("space=100000", "space=0&side=both", "space=0&width=900", "space=0&width=x"):
            reply = line.get(f"/ui/diff/space.json?{asked}&{bad}")
            assert (reply.status_code, "message" in reply.json()) == (422, True)
        assert (
            line.get(f"/ui/diff?{asked}&width=nonsense", headers={"accept": "text/html"}).status_code == 200
        )


def test_who_may_not_see_a_model_learns_nothing_of_its_layers(tmp_path: Path) -> None:
    with team(tmp_path) as keeper:
        ada = keeper.join("ada")
        keeper.accounts.add_project("secret", ("ada",))
        record = ada.register(SMALL, told(project="secret"), tensors(SMALL).items()).record
        known = {}
        for user in ("ada", "eve"):
            token = keeper.accounts.add_token(user, "read") if user == "ada" else keeper.token(user, "read")
            with httpx.Client(base_url=keeper.url, headers={"origin": keeper.url}) as line:
                line.post("/ui/login", data={"token": token})
                both = f"parent={record.id}&child={record.id}"
                headers = {"accept": "application/json"}
                known[user] = [
                    line.get(f"/ui/{place}?{both}{more}", headers=headers).status_code
                    for place, more in (
                        ("diff.json", ""),
                        ("diff/layer.json", "&row=1"),
                        ("diff/space.json", "&space=0"),
                    )
                ]
        assert known == {"ada": [200, 200, 200], "eve": [404, 404, 404]}


def test_columns_are_plain_json(zoo: Zoo) -> None:
    found = httpx.get(f"{zoo.url}/ui/diff.json?parent={zoo.small.id}&child={zoo.large.id}").text
    assert json.loads(found)["count"] == len(json.loads(found)["action"])
