"""The map in a browser: points, colours, zoom, lines, a part that becomes a table, by hand and by keys."""

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.server.serve import serving
from modelkeeper.settings import ServiceSettings, Settings
from modelkeeper.zoo.chart import MOST_DRAWN, SHORT, Chart
from tests.helpers.browsers import shot, tab
from tests.helpers.dashboards import fill_family, fill_hostile, hostile
from tests.helpers.generated import vgg
from tests.helpers.zoos import register

MANY = 20_000


class Zoo:
    """A service without users that has a zoo with families and hostile names, and others that have less."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self.coordinator, self.url = self.served("zoo")
        self.family = fill_family(self.coordinator, 24)
        self.hostile = fill_hostile(self.coordinator)

    def served(self, name: str) -> tuple[LocalCoordinator, str]:
        local = LocalCoordinator(Settings(home=str(self._folder / name), minimum_peers=10**6))
        self._stack.callback(local.close)
        return local, self._stack.enter_context(serving(local, ServiceSettings(port=0, auth=False)))


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zoo]:
    with contextlib.ExitStack() as stack:
        yield Zoo(tmp_path_factory.mktemp("map"), stack)


@pytest.fixture
def page(zoo: Zoo, browser: Browser) -> Iterator[Page]:
    with tab(browser, zoo.url) as found:
        opened(found)
        yield found


def opened(page: Page, address: str = "/ui/map") -> None:
    page.goto(address)
    page.wait_for_selector("#map[data-ready]", timeout=60_000)


def data(page: Page, name: str) -> str:
    return page.locator("#map").get_attribute(f"data-{name}") or ""


def drag(page: Page, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Drag from one place of the canvas to another, both as shares of it."""
    box = page.locator("#map-canvas").bounding_box()
    assert box is not None
    (left, top), (right, bottom) = (
        (box["x"] + box["width"] * x, box["y"] + box["height"] * y) for x, y in (start, end)
    )
    page.mouse.move(left, top)
    page.mouse.down()
    page.mouse.move(right, bottom, steps=4)
    page.mouse.up()


def picture(page: Page) -> str:
    """What is on the canvas, when it has been drawn."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return str(page.evaluate("document.getElementById('map-canvas').toDataURL()"))


def architectures(records: list[Any]) -> int:
    return len({record.fingerprint for record in records})


def test_every_architecture_is_a_point_in_every_colour(zoo: Zoo, page: Page) -> None:
    models = zoo.coordinator.models()
    expect(page.locator("#map-words")).to_have_text(
        f"{architectures(models)} architectures of {len(models)} models"
    )
    pictures = {picture(page)}
    for colour in ("task", "data", "framework", "family"):
        page.get_by_role("combobox", name="Colour").select_option(colour)
        assert f"colour={colour}" in page.url
        pictures.add(picture(page))
        counts = [int(text) for text in page.locator("#map-legend small").all_inner_texts()]
        assert sum(counts) == architectures(models)
    assert len(pictures) == 5
    expect(page.locator("#map-legend")).to_contain_text("transformer")
    page.get_by_label("lineage").check()
    assert "lineage=1" in page.url
    assert picture(page) not in pictures
    shot(page, "map-families")
    page.reload()
    page.wait_for_selector("#map[data-ready]")
    expect(page.get_by_label("lineage")).to_be_checked()
    assert data(page, "colour") == "family"


def test_a_rectangle_becomes_a_table_that_can_be_sent(zoo: Zoo, page: Page) -> None:
    page.keyboard.down("Shift")
    drag(page, (0.01, 0.01), (0.99, 0.99))
    page.keyboard.up("Shift")
    models = zoo.coordinator.models()
    assert int(data(page, "chosen")) == architectures(models)
    page.get_by_role("button", name="Select none").click()
    assert data(page, "chosen") == "0"
    page.get_by_role("button", name="Select", exact=True).click()
    drag(page, (0.01, 0.01), (0.5, 0.99))
    chosen = int(data(page, "chosen"))
    assert 0 < chosen < architectures(models)
    shot(page, "map-selected")
    expect(page.locator("#map-title")).to_have_text("Selected")
    page.get_by_role("link", name="Show in the zoo").click()
    expect(page.get_by_role("heading", name="Zoo")).to_be_visible()
    assert re.search(r"architecture=[0-9a-f]{16}(,|%2C|$)", page.url)
    shown = re.search("([0-9]+) models? of this choice", page.locator(".title").inner_text())
    assert shown is not None
    names = page.locator("table.zoo .name").all_inner_texts()
    assert len(names) == int(shown[1]) < len(models)
    chip = page.locator(".chosen .chip")
    expect(chip).to_contain_text(f"that of {chosen} models")
    page.get_by_label("Name").fill("vgg")
    page.get_by_role("button", name="Show", exact=True).click()  # more filters keep the choice
    expect(page.locator(".chosen .chip")).to_have_count(1)
    chip.click()
    assert "architecture" not in page.url


def test_many_points_are_named_by_a_part_of_the_map(zoo: Zoo, browser: Browser) -> None:
    with tab(browser, zoo.url) as page:
        opened(page)
        page.evaluate("document.getElementById('map').dataset.most = 3")
        page.get_by_role("button", name="Select view").click()
        link = page.get_by_role("link", name="Show in the zoo")
        assert re.search(r"\?map=[0-9a-f]{8}(,-?[0-9]+){4}$", link.get_attribute("href") or "")
        link.click()
        expect(page.locator(".title")).to_contain_text(
            f"{len(zoo.coordinator.models())} models of this choice"
        )
        expect(page.locator(".chosen .chip")).to_contain_text("a part: of the map")


def test_it_is_moved_and_zoomed_by_wheel_hand_and_buttons(page: Page) -> None:
    before = picture(page)
    page.locator("#map-canvas").hover()
    page.mouse.wheel(0, -600)
    assert float(data(page, "scale")) > 2
    zoomed = picture(page)
    drag(page, (0.5, 0.5), (0.7, 0.6))
    assert len({before, zoomed, picture(page)}) == 3
    assert data(page, "chosen") in ("", "0")  # that was no choice
    for _ in range(30):
        page.get_by_role("button", name="Zoom out").click()
    assert float(data(page, "scale")) == 0.5
    page.get_by_role("button", name="Zoom in").click()
    assert float(data(page, "scale")) == 0.75
    page.get_by_role("button", name="All").click()
    assert data(page, "scale") == "1.000"


def test_it_is_used_by_keyboard_and_its_points_are_listed(zoo: Zoo, page: Page) -> None:
    page.locator("#map-canvas").focus()
    for key in ("+", "+", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    assert data(page, "scale") == "2.250"
    page.keyboard.press("0")
    page.keyboard.press("Enter")
    rows = page.locator("#map-rows tr")
    expect(rows).to_have_count(1)
    first = rows.first.get_by_role("link")
    name = first.inner_text()
    page.keyboard.press("Escape")
    expect(page.locator("#map-title")).to_have_text("Nearest to the middle")
    expect(rows.first.get_by_role("link")).to_have_text(name)
    assert rows.count() == architectures(zoo.coordinator.models())
    rows.first.get_by_role("link").click()
    expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()


def test_a_point_tells_what_it_is(zoo: Zoo, page: Page) -> None:
    """Law: whatever a model is called stands there as text."""
    spots = page.evaluate(
        """async () => {
          const said = await (await fetch('/ui/map.json')).json();
          return said.name.map((name, place) => [name, said.id[place]]);
        }"""
    )
    assert {identity for _, identity in spots} <= {record.id for record in zoo.coordinator.models()}
    seen = set()
    canvas = page.locator("#map-canvas")
    box = canvas.bounding_box()
    assert box is not None
    for y in range(8, int(box["height"]), 14):
        for x in range(8, int(box["width"]), 28):
            canvas.dispatch_event(
                "pointermove", {"pointerId": 1, "clientX": box["x"] + x, "clientY": box["y"] + y}
            )
            if page.locator("#map-tip").is_visible():
                seen.add(page.locator("#map-tip b").inner_text())
    names = {name.strip() for name, _ in spots}
    assert seen
    assert {name.strip() for name in seen} <= names
    assert any(hostile(number)[:20] in name for name in seen for number in range(10))


def test_a_page_that_comes_before_the_map_asks_again(zoo: Zoo, browser: Browser) -> None:
    with tab(browser, zoo.url) as page:
        states = iter(["drawing", "late", "failed", "elsewhere"])
        asked: list[str] = []

        def answer(route: Route) -> None:
            asked.append(next(states))
            route.fulfill(json=json.loads(msgspec.json.encode(Chart(state=asked[-1]))))

        page.route("**/ui/map.json", answer)
        opened(page)
        assert asked == ["drawing", "late", "failed", "elsewhere"]
        expect(page.locator("#map-words")).to_contain_text("lies in shards")
        expect(page.locator("#map-canvas")).to_be_hidden()


def test_empty_and_one(zoo: Zoo, browser: Browser) -> None:
    _, url = zoo.served("nothing")
    with tab(browser, url) as page:
        opened(page)
        expect(page.locator("#map-words")).to_contain_text("There is no model to show")
        expect(page.locator("#map-canvas")).to_be_hidden()
    only, url = zoo.served("one")
    register(only, vgg((4, 4)), "only")
    with tab(browser, url) as page:
        opened(page)
        expect(page.locator("#map-words")).to_have_text("1 architecture of 1 model")
        drag(page, (0.4, 0.4), (0.4, 0.4))
        assert data(page, "chosen") == "0"
        drag(page, (0.5, 0.5), (0.5, 0.5))
        assert data(page, "chosen") == "1"
        expect(page.locator("#map-rows tr")).to_have_count(1)


def test_twenty_thousand_points_are_few_elements(zoo: Zoo, browser: Browser) -> None:
    places = range(MANY)
    chart = Chart(
        mark="0" * 8,
        x=[(place * 7919) % 4001 - 2000 for place in places],
        y=[(place * 104_729) % 3001 - 1500 for place in places],
        id=[f"{place:016x}" for place in places],
        name=[f"network-{place:05}-of-somebody-else"[:SHORT] for place in places],
        models=[1 + place % 9 for place in places],
        rank=[place % 101 for place in places],
        value=[round(place / MANY, 4) for place in places],
        metric=[0] * MANY,
        task=[place % 150 for place in places],
        data=[place % 3 for place in places],
        framework=[0] * MANY,
        family=[place % 8 for place in places],
        metrics=["accuracy"],
        tasks=[f"task {number}" for number in range(150)],
        data_sets=["a", "b", "c"],
        frameworks=["torch"],
        families=[f"family {number}" for number in range(8)],
        lines=[(place, place // 2) for place in range(MANY - MOST_DRAWN, MANY)],
        stress=0.3,
        correlation=0.8,
    )
    body = msgspec.json.encode(chart)
    assert len(body) < 2_000_000
    with tab(browser, zoo.url) as page:
        page.route("**/ui/map.json", lambda route: route.fulfill(body=body, content_type="application/json"))
        opened(page, "/ui/map?colour=task&lineage=1")
        page.get_by_role("button", name="Select view").click()
        assert data(page, "chosen") == str(MANY)
        assert "map=00000000" in (
            page.get_by_role("link", name="Show in the zoo").get_attribute("href") or ""
        )
        expect(page.locator("#map-count")).to_have_text(re.compile("20,000 architectures, .* 40 are listed"))
        assert page.evaluate("document.querySelectorAll('*').length") < 2000
        page.get_by_role("button", name="Select none").click()
        page.get_by_role("button", name="Zoom in").click()
        shot(page, "map-20000")
