"""Savings: three kinds side by side, chosen by addresses, for colleagues alone."""

import html
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest
from playwright.sync_api import Browser, expect

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.server.ui.views.savings import EVIDENCE, Choice, weekly
from modelkeeper.zoo.history import savings as evidence
from modelkeeper.zoo.history.savings import Saved, Savings, SavingsOf
from tests.helpers.browsers import tab
from tests.helpers.dashboards import age, fill_family, served
from tests.helpers.service import team

HTML = {"accept": "text/html"}


class Zoo:
    """A service without users, whose family grew over ten weeks."""

    def __init__(self, coordinator: LocalCoordinator, url: str) -> None:
        self.coordinator, self.url = coordinator, url
        age(coordinator, fill_family(coordinator, 14), 70)
        self.line = httpx.Client(base_url=url, headers=HTML)


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zoo]:
    with served(tmp_path_factory.mktemp("savings")) as (local, url):
        found = Zoo(local, url)
        yield found
        found.line.close()


def plain(text: str) -> str:
    """What a page says, without its markup."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())


def test_each_kind_is_said_for_itself(zoo: Zoo) -> None:
    text, found = zoo.line.get("/ui/savings").text, zoo.coordinator.savings()
    sums = [found.total.measured, found.total.matched, found.total.estimated]
    assert all(part.starts for part in sums), "each kind is there, or this tests nothing"
    for kind, part in zip(EVIDENCE, sums, strict=True):
        [card] = re.findall(rf'<section class="card" id="{kind}">(.*?)</section>', text, re.DOTALL)
        assert f"{part.steps:,.0f} steps" in plain(card)
        assert f"saved over {part.starts} start" in plain(card)
        assert EVIDENCE[kind] in plain(card)
    both = f"{sum(part.steps for part in sums):,.0f}"
    assert both not in plain(text), "they are never added up"
    assert "They are not to be added up." in plain(text)
    cost = plain(text).partition("What the zoo costs")[2]
    assert f"{found.race_steps:,} steps" in cost


def test_groups_are_chosen_by_links(zoo: Zoo) -> None:
    users = zoo.coordinator.savings("user").groups
    text = zoo.line.get("/ui/savings?by=user&days=365").text
    for group in users:
        assert f'href="/ui/savings?by=user&amp;days=365&amp;user={group.name}"' in text
    one = zoo.line.get(f"/ui/savings?user={users[0].name}").text
    assert f"{users[0].starts} start" in plain(one)
    assert f"user: {users[0].name}" in plain(one)
    weeks = plain(zoo.line.get("/ui/savings").text)
    names = re.findall(r"\d{4}-W\d\d", weeks.partition("By week")[2])
    assert names == sorted(names, reverse=True)
    assert len(names) == len(zoo.coordinator.savings().groups)
    nobody = plain(zoo.line.get("/ui/savings?user=nobody").text)
    assert "Nobody started a training" in nobody
    assert "None of this choice." in nobody


def test_weeks_without_a_start_are_there_unless_starts_were_left_out() -> None:
    monday = 1_763_337_600.0  # 2025-11-17
    weeks = (
        SavingsOf(name="2025-W45", starts=1, matched=Saved(1, 5.0, 2.0)),
        SavingsOf(name="2025-W47", starts=1),
    )
    found = Savings(
        by="week",
        since=monday - 30 * 86400,
        until=monday + 3600,
        groups=weeks,
        weeks=weeks,
        total=weeks[0] + weeks[1],
        complete=True,
        bytes=0,
        query_seconds=0.0,
        race_steps=0,
        race_seconds=0.0,
    )
    rows = weekly(found)
    assert [row["name"] for row in rows] == [f"2025-W{week}" for week in (42, 43, 44, 45, 46, 47)]
    assert rows[-1]["at"] == monday
    assert rows[3]["matched"] == Saved(1, 5.0, 2.0)
    assert rows[4]["matched"] == Saved()
    partly = weekly(msgspec.structs.replace(found, complete=False))
    assert [row["name"] for row in partly] == ["2025-W45", "2025-W46", "2025-W47"]
    assert weekly(msgspec.structs.replace(found, weeks=())) == []


def test_what_is_left_out_is_said(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    words = "Older starts of this time are left out: there are too many."
    assert words not in plain(zoo.line.get("/ui/savings").text)
    monkeypatch.setattr(evidence, "MOST_STARTS", 5)
    text = plain(zoo.line.get("/ui/savings").text)
    assert words in text
    assert "5 starts" in text


def test_a_choice_leads_back_to_its_address() -> None:
    asked = {"by": "user", "days": "30", "user": " ada ", "task": "", "data": '"><b>', "other": "x"}
    choice = Choice.read(asked)
    assert (choice.by, choice.days, choice.only) == ("user", "30", {"user": "ada", "data": '"><b>'})
    assert choice.address() == "/ui/savings?user=ada&data=%22%3E%3Cb%3E&by=user&days=30"
    assert choice.address(user="", data="", by="", days="") == "/ui/savings"
    assert Choice.read({"by": "<b>", "days": "7e9"}) == Choice("week", "90", {})
    now = time.time()
    assert choice.filter(now).since == now - 30 * 86400


def test_the_chart_is_of_steps_or_of_time_by_keyboard(zoo: Zoo, browser: Browser) -> None:
    with tab(browser, zoo.url) as page:
        page.goto("/ui/savings")
        page.wait_for_selector("#weeks[data-ready]")
        steps = page.get_by_role("group", name="steps saved by week")
        expect(steps).to_be_visible()
        weeks = json.loads(page.locator("#weeks").get_attribute("data-weeks") or "")
        legend = page.locator("#weeks .chart-legend").first
        expect(legend).to_contain_text(f"matched {weeks[-1]['matched']['steps']:,.0f}")
        page.get_by_role("radio", name="steps").focus()
        page.keyboard.press("ArrowRight")
        expect(page.get_by_role("group", name="time saved by week")).to_be_visible()
        expect(steps).to_be_hidden()
        page.get_by_role("group", name="time saved by week").focus()
        page.keyboard.press("Home")
        expect(page.locator("#weeks .where:visible")).to_have_text(f"at {weeks[0]['name']}")


def test_partners_are_told_nothing(tmp_path: Path) -> None:
    with team(tmp_path) as keeper:
        for scope, told in (("read", True), ("partner", False)):
            headers = {**HTML, "origin": keeper.url, "sec-fetch-site": "same-origin"}
            with httpx.Client(base_url=keeper.url, headers=headers) as line:
                assert line.get("/ui/savings").status_code == 303  # to log in
                line.post("/ui/login", data={"token": keeper.token(scope, scope)})
                assert ('href="/ui/savings"' in line.get("/ui/models").text) is told
                reply = line.get("/ui/savings")
                assert reply.status_code == (200 if told else 403)
                assert ("What the zoo costs" in reply.text) is told
                assert told or "this needs the scope read, yours is partner" in reply.text
