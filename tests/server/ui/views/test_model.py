"""The page of a model: how its training went beside another, its children and its loans, for colleagues."""

import html
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.meta import Query
from modelkeeper.zoo.records import Record
from tests.helpers.browsers import tab
from tests.helpers.dashboards import fill_family, fill_hostile, hostile, served
from tests.helpers.service import network, team, tensors, told

HTML = {"accept": "text/html"}


class Zoo:
    """A service without users, with a family and its enemies."""

    def __init__(self, coordinator: LocalCoordinator, url: str) -> None:
        self.coordinator, self.url = coordinator, url
        self.family, self.hostile = fill_family(coordinator, 12), fill_hostile(coordinator)
        self.line = httpx.Client(base_url=url, headers=HTML)

    def beside(self, kind: str) -> Record:
        return next(record for record in self.family if self.coordinator.curves(record).kind == kind)


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zoo]:
    with served(tmp_path_factory.mktemp("model")) as (local, url):
        found = Zoo(local, url)
        yield found
        found.line.close()


def section(text: str, name: str) -> str:
    """What a part of the page says."""
    [found] = re.findall(rf'<h2 id="{name}">(.*?)</section>', text, re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", found)).split())


def test_a_training_is_drawn_beside_its_cold_twin(zoo: Zoo, browser: Browser) -> None:
    record = zoo.beside("cold twin")
    twin = zoo.coordinator.curves(record)
    with tab(browser, zoo.url) as page:
        page.goto(f"/ui/models/{record.id}")
        page.wait_for_selector("#curve[data-ready]")
        expect(page.locator("#curve .chart-legend bdi")).to_have_text(
            [record.name, f"cold twin: {twin.name}"]
        )
        words = page.locator("#curve-words")
        expect(words).to_contain_text("of the same architecture, data and task")
        expect(words).to_contain_text("earlier")
        by_step = page.get_by_role("group", name="accuracy by step")
        expect(by_step).to_be_visible()
        page.get_by_role("radio", name="by step").focus()
        page.keyboard.press("ArrowRight")  # as radio buttons go
        by_time = page.get_by_role("group", name="accuracy by time")
        expect(by_time).to_be_visible()
        expect(by_step).to_be_hidden()
        page.keyboard.press("Tab")
        expect(by_time).to_be_focused()
        page.keyboard.press("End")
        expect(page.locator("#curve .where:visible")).to_have_text("at 68 s")
        words.get_by_role("link").click()
        page.wait_for_selector("#curve[data-ready]")
        expect(page.get_by_role("heading", level=1)).to_have_text(twin.name)
        expect(page.locator("#curve-words")).to_have_text("It started cold.")


def test_without_a_twin_it_is_drawn_beside_its_parent(zoo: Zoo, browser: Browser) -> None:
    with tab(browser, zoo.url) as page:
        page.goto(f"/ui/models/{zoo.beside('parent').id}")
        page.wait_for_selector("#curve[data-ready]")
        expect(page.locator("#curve-words")).to_contain_text("Dashed: its parent,")
        expect(page.locator("#curve .chart-legend bdi").last).to_have_text(re.compile("^parent: "))


def test_by_how_much_it_was_earlier_is_told_of_a_twin_alone(zoo: Zoo) -> None:
    twin, parent = (
        zoo.line.get(f"/ui/models/{zoo.beside(kind).id}/curves.json").json()
        for kind in ("cold twin", "parent")
    )
    assert twin["earlier"]["steps"] > 0
    assert twin["curve"]["points"][0][:2] == [0, 0.0]
    assert parent["earlier"] is None


def test_children_say_what_they_gained_and_loans_what_came_of_them(zoo: Zoo) -> None:
    record = max(zoo.family, key=lambda one: len(zoo.coordinator.children(one)))
    text = zoo.line.get(f"/ui/models/{record.id}").text
    children, loans = section(text, "children"), section(text, "loans")
    listed = zoo.coordinator.children(record)
    assert listed
    for child in listed:
        assert child.name in children
        assert child.gain is not None
        assert f"{child.gain:+.3g}" in children
        if child.kind:
            assert f"{child.saved(child.kind).steps:,.0f} step" in children
            assert child.kind in children
    for loan in zoo.coordinator.loans(record):
        assert loan.user in loans
        assert zoo.coordinator.show(loan.model).name in loans


def test_a_race_that_was_lost_is_told(zoo: Zoo) -> None:
    lost = [one for record in zoo.family for one in zoo.coordinator.loans(record) if one.lost]
    assert lost
    parent = zoo.coordinator.show(lost[0].model).parent
    assert "a cold start won the race" in section(zoo.line.get(f"/ui/models/{parent}").text, "loans")


def test_hostile_borrowers_and_metrics_are_text(zoo: Zoo, browser: Browser) -> None:
    record = zoo.hostile[1]
    text = zoo.line.get(f"/ui/models/{record.id}").text
    assert hostile(1).replace("/", "|") in section(text, "loans")
    with tab(browser, zoo.url) as page:
        page.goto(f"/ui/models/{record.id}")
        page.wait_for_selector("#curve[data-ready]")
        name = zoo.coordinator.curves(record).curve
        assert name is not None
        assert "{{" in name.metric
        plot = page.locator("#curve .plot").first
        assert (plot.get_attribute("aria-label") or "").startswith(f"{name.metric} by step.")
        expect(page.locator("#curve .chart-legend bdi").first).to_have_text(record.name)


def test_partners_see_a_model_and_nothing_of_what_came_of_it(tmp_path: Path) -> None:
    with team(tmp_path) as keeper:
        ann, graph = keeper.join("ann"), network()
        record = ann.register(graph, told("shared", licence="Apache-2.0"), tensors(graph).items()).record
        ann.publish(record.id)
        ann.query(network(12), Query(data="digits", task="classification", minimum_similarity=0.1))
        for scope, knows in (("read", True), ("partner", False)):
            headers = {**HTML, "origin": keeper.url, "sec-fetch-site": "same-origin"}
            with httpx.Client(base_url=keeper.url, headers=headers) as line:
                line.post("/ui/login", data={"token": keeper.token(scope, scope)})
                page = line.get(f"/ui/models/{record.id}")
                assert page.status_code == 200
                assert "shared" in page.text
                assert ('id="loans"' in page.text) is knows
                assert ("ann" in page.text.partition('id="loans"')[2]) is knows
                reply = line.get(f"/ui/models/{record.id}/curves.json", headers={"accept": "*/*"})
                assert reply.status_code == (200 if knows else 403)
