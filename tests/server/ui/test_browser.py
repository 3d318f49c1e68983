"""The pages in a real browser: do they work, are they sound to look at, can nothing in a zoo harm them?"""

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.graph import to_json
from modelkeeper.server.serve import serving
from modelkeeper.settings import ServiceSettings, Settings
from modelkeeper.zoo.records import Record
from tests.helpers.browsers import shot, tab
from tests.helpers.dashboards import fill_family, fill_hostile, keep_busy, multiply
from tests.helpers.generated import vgg
from tests.helpers.vendored import AXE, ROOT
from tests.helpers.zoos import register

pytestmark = pytest.mark.xdist_group("browser")  # one zoo of 10,000 models, where groups are asked for

PLACES = ("models", "diff", "map", "what-if", "savings", "log", "health")
DEEP = 2500  # convolutions: as many pairs of layers with their norms are 5,000 rows
MANY = 10_000
USERS = {"root": "admin", "eve": "read", "<i>mallory<i>": "write", "partner": "partner"}


class Zoo:
    """A service with a zoo of everything, and one with nothing."""

    def __init__(
        self, folder: Path, stack: contextlib.ExitStack, catalog: str = "", deep: int = DEEP, many: int = MANY
    ) -> None:
        home = str(folder / "zoo")
        self.coordinator = LocalCoordinator(Settings(home=home, catalog=catalog, minimum_peers=10**6))
        stack.callback(self.coordinator.close)
        self.hostile = fill_hostile(self.coordinator)
        self.family = fill_family(self.coordinator, 12)
        self.deep = [
            register(self.coordinator, vgg((8,) * deep), "deep", task="deep"),
            register(self.coordinator, vgg((8,) * (deep - 2) + (16,) * 2), "deeper", task="deep"),
        ]
        self.secret = register(
            self.coordinator,
            vgg((4, 6)),
            "secret-net",
            owner="ada",
            visibility="private",
            parent=self.family[0].id,
        )
        self.shared = register(
            self.coordinator, vgg((6, 4)), "shared-net", owner="ada", licence="mit", parent=self.secret.id
        )
        self.coordinator.publish(self.shared.id)
        multiply(self.coordinator, self.family[0], many)
        keep_busy(self.coordinator, 24, every=5)
        accounts = self.coordinator.accounts
        self.tokens = {}
        for user, scope in USERS.items():
            accounts.add_user(user)
            self.tokens[user] = accounts.add_token(user, scope, note="<b>for</b> tests")
        accounts.set_quotas("root", bytes=10**6, models=0)
        accounts.add_project("'><script>alert(1)<|script>", ("<i>mallory<i>",))
        mallory = next(user for user in accounts.users() if "mallory" in user.name)
        self.administered = {
            "user": f"users/{mallory.id}",
            "project": f"projects/{accounts.projects()[0].id}",
        }
        self.url = stack.enter_context(serving(self.coordinator, ServiceSettings(port=0)))
        nothing = LocalCoordinator(Settings(home=str(folder / "nothing")))
        stack.callback(nothing.close)
        self.empty = stack.enter_context(serving(nothing, ServiceSettings(port=0, auth=False)))


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zoo]:
    with contextlib.ExitStack() as stack:
        yield Zoo(tmp_path_factory.mktemp("dashboard"), stack)


@pytest.fixture(scope="module")
def sessions(zoo: Zoo, browser: Browser) -> dict[str, Any]:
    """What the browser keeps of each user who logged in."""
    states = {}
    for user, token in zoo.tokens.items():
        with tab(browser, zoo.url) as page:
            page.goto("/")
            page.get_by_label("Token").fill(token)
            page.get_by_role("button", name="Log in").click()
            expect(page.get_by_role("heading", name="Zoo")).to_be_visible()
            states[user] = page.context.storage_state()
    return states


@pytest.fixture
def page(zoo: Zoo, browser: Browser, sessions: dict[str, Any]) -> Iterator[Page]:
    """A tab of an administrator."""
    with tab(browser, zoo.url, storage_state=sessions["root"]) as found:
        yield found


def check(page: Page, *rules: str) -> None:
    """Nothing serious that axe finds, by these rules or by all, and nothing wider than the window."""
    page.evaluate((ROOT / AXE.kept["axe.min.js"][0]).read_text())
    chosen = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    found = page.evaluate("chosen => axe.run(document, chosen)", chosen)
    serious = [
        (rule["id"], node["target"], node.get("failureSummary", "")[:200])
        for rule in found["violations"]
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]
    assert serious == []
    fits(page)


def fits(page: Page) -> None:
    """Nothing is wider than the window."""
    width, room = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width <= room, f"{page.url} is {width} wide"


def nodes(page: Page) -> int:
    return int(page.evaluate("document.querySelectorAll('*').length"))


def loaded(page: Page) -> None:
    """Wait for what scripts put into a page."""
    page.wait_for_function(
        "() => !document.querySelector('#layers > p.hint, #diff:not([data-ready]), #map:not([data-ready]),"
        " #curve:not([data-ready]),"
        " #weeks:not([data-ready]), #activity:not([data-ready])')"
        " && (!document.querySelector('#of-zoo')?.value || document.querySelector('#answer > .card'"
        " + ', [role=alert]:not(:empty)'))"
    )


# How many elements of the content can be reached; and where the focus is: inside of it, and marked so?
FOCUSABLE = """() => [...document.querySelectorAll('#main :is(a[href], button, input, select, textarea,'
  + 'summary, [tabindex="0"])')].filter(e => !e.disabled && e.checkVisibility()).length"""
FOCUSED = """() => {
  const at = document.activeElement, style = getComputedStyle(at), box = at.getBoundingClientRect();
  return {inside: document.querySelector('#main').contains(at), what: at.outerHTML.slice(0, 120),
          marked: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0 && box.width > 0};
}"""


# -- every page, in every light ----------------------------------------------------------------------------


def addresses(zoo: Zoo) -> dict[str, str]:
    family, hostile, deep = zoo.family[-1], zoo.hostile[-1], zoo.deep
    return {
        **{place: f"/ui/{place}" for place in PLACES},
        "models-chosen": "/ui/models?text=a&task=classification&tag=nas&order=-value&least_bytes=1kB",
        "model": f"/ui/models/{family.id}",
        "model-hostile": f"/ui/models/{hostile.id}",
        "diff-hostile": f"/ui/diff?parent={zoo.hostile[0].id}&child={hostile.id}",
        "diff-deep": f"/ui/diff?parent={deep[0].id}&child={deep[1].id}",
        "map-families": "/ui/map?colour=family&lineage=1",
        "what-if-model": f"/ui/what-if?model={family.id}",
        "what-if-hostile": f"/ui/what-if?model={hostile.id}",
        "admin": "/ui/admin",
        **{f"admin-{name}": f"/ui/admin/{place}" for name, place in zoo.administered.items()},
        "savings-user": "/ui/savings?by=user&days=365",
        "savings-hostile": "/ui/savings?user=%3Cscript%3Ealert(1)%3C%7Cscript%3E&project=%22%3E",
        "health-hour": "/ui/health?range=hour",
        "health-foreseen": "/ui/health?capacity=20kB",
        "log-hostile": f"/ui/log?model={hostile.id}",
    }


@pytest.mark.parametrize(
    ("light", "width", "rules"),
    [
        ("light", 1280, ()),
        ("dark", 1280, ("color-contrast",)),
        ("light", 360, ("scrollable-region-focusable", "meta-viewport")),
    ],
)
def test_every_page_is_sound(
    zoo: Zoo, browser: Browser, sessions: dict[str, Any], light: Any, width: int, rules: tuple[str, ...]
) -> None:
    look = {"color_scheme": light, "viewport": {"width": width, "height": 800}}
    with tab(browser, zoo.url, storage_state=sessions["root"], **look) as page:
        for name, address in addresses(zoo).items():
            page.goto(address)
            loaded(page)
            check(page, *rules)
            assert nodes(page) < 2000
            shot(page, f"{name}-{light}-{width}")
    with tab(browser, zoo.empty, **look) as page:
        for place in PLACES:
            page.goto(f"/ui/{place}")
            loaded(page)
            check(page, *rules)
            shot(page, f"empty-{place}-{light}-{width}")
    with tab(browser, zoo.url, **look) as page:
        page.goto("/ui/models")
        check(page, *rules)
        shot(page, f"login-{light}-{width}")


def test_day_and_night_differ(zoo: Zoo, browser: Browser) -> None:
    colours = []
    for light in ("light", "dark"):
        scheme: Any = light
        with tab(browser, zoo.empty, color_scheme=scheme) as page:
            page.goto("/ui/models")
            colours.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(set(colours)) == 2


def seen(page: Page, places: dict[str, str]) -> set[str]:
    """Open those of some pages that may be seen, each without a fault; the names of the others."""
    refused = set()
    for name, address in places.items():
        status = page.context.request.get(address, headers={"accept": "text/html"}).status
        if status == 200:
            page.goto(address)
            loaded(page)
            fits(page)
        else:
            assert status in (403, 404), (name, status)
            refused.add(name)
    return refused


def test_a_reader_sees_all_but_administration_and_secrets(
    zoo: Zoo, browser: Browser, sessions: dict[str, Any]
) -> None:
    with tab(browser, zoo.url, storage_state=sessions["eve"]) as page:
        places = addresses(zoo) | {"secret": f"/ui/models/{zoo.secret.id}"}
        assert seen(page, places) == {"secret", *(name for name in places if name.startswith("admin"))}
        for model in ("?text=-net", f"/{zoo.shared.id}", f"/{zoo.family[0].id}"):
            page.goto(f"/ui/models{model}")
            loaded(page)
            assert ("shared-net" in page.content()) == (zoo.family[0].id not in model)
            assert "secret-net" not in page.content()
            assert zoo.secret.id not in page.content()
            assert page.locator("form[method=post] button").all_inner_texts() == ["Log out"]


def test_a_partner_sees_what_is_published_and_no_more(
    zoo: Zoo, browser: Browser, sessions: dict[str, Any]
) -> None:
    hidden = [record for record in (*zoo.family, zoo.secret, *zoo.deep) if record.id != zoo.shared.id]
    with tab(browser, zoo.url, storage_state=sessions["partner"]) as page:
        places = addresses(zoo) | {
            "shared": f"/ui/models/{zoo.shared.id}",
            "secret": f"/ui/models/{zoo.secret.id}",
        }
        refused = seen(page, places)
        assert {"admin", "model", "model-hostile", "secret"} <= refused
        assert not {"models", "models-chosen", "shared"} & refused
        for name in (
            places.keys() - refused - {"diff-hostile", "diff-deep"}
        ):  # which say the ids that they ask
            text = page.context.request.get(places[name], headers={"accept": "text/html"}).text()
            asked = {record.id for record in hidden if record.id in places[name]}
            assert not [record for record in hidden if record.id in text and record.id not in asked], name
        page.goto("/ui/models")
        assert names(page) == ["shared-net"]


def test_every_page_is_used_by_keyboard(page: Page, zoo: Zoo) -> None:
    """The link to the content comes first; from there Tab goes on to what is there, and shows where it is."""
    for name, address in addresses(zoo).items():
        page.goto(address)
        loaded(page)
        page.keyboard.press("Tab")
        expect(page.locator("a.skip")).to_be_focused()
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        there = page.evaluate(FOCUSABLE)
        for number in range(min(there, 6)):
            page.keyboard.press("Tab")
            found = page.evaluate(FOCUSED)
            assert found["inside"], (name, number, found)
            assert found["marked"], (name, number, found)


# -- access ------------------------------------------------------------------------------------------------


def test_logging_in_leads_back_and_out_again(zoo: Zoo, browser: Browser) -> None:
    with tab(browser, zoo.url) as page:
        page.goto("/ui/log?action=registered")
        assert page.url.endswith("/ui/login?to=/ui/log%3Faction%3Dregistered")
        assert page.get_by_role("navigation").count() == 0
        page.get_by_label("Token").fill(zoo.tokens["eve"])
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Log")).to_be_visible()
        assert page.url.endswith("/ui/log?action=registered")
        assert "modelkeeper" not in page.evaluate("document.cookie")  # scripts cannot read it
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_label("Token")).to_be_visible()
        page.goto("/ui/health")
        expect(page.get_by_label("Token")).to_be_visible()


def test_a_link_of_another_site_leads_where_it_says(
    zoo: Zoo, browser: Browser, sessions: dict[str, Any]
) -> None:
    """The browser keeps the session to itself at first; without one, the login page comes."""
    link = f"data:text/html,<a href='{zoo.url}/ui/health'>health</a>"
    for state, heading in ((sessions["eve"], "Health"), (None, "Log in")):
        context = browser.new_context(storage_state=state)
        page = context.new_page()
        page.goto(link)
        page.get_by_role("link").click()
        expect(page.get_by_role("heading", name=heading)).to_be_visible()
        context.close()


def test_a_reader_sees_no_way_to_change_anything(
    zoo: Zoo, browser: Browser, sessions: dict[str, Any]
) -> None:
    for user, may in (("eve", False), ("root", True)):
        with tab(browser, zoo.url, storage_state=sessions[user]) as page:
            page.goto(f"/ui/models/{zoo.family[0].id}")
            assert (page.get_by_role("button", name="Pin").count() == 1) is may
            assert (page.get_by_text("Remove…").count() == 1) is may
            shot(page, f"model-as-{user}")


def test_a_name_of_a_user_is_text(zoo: Zoo, browser: Browser, sessions: dict[str, Any]) -> None:
    with tab(browser, zoo.url, storage_state=sessions["<i>mallory<i>"]) as page:
        page.goto("/ui/models")
        expect(page.get_by_text("<i>mallory<i>")).to_be_visible()


def test_a_token_is_made_shown_once_and_revoked(page: Page, zoo: Zoo) -> None:
    page.goto("/ui/models")
    page.get_by_role("link", name="Admin").click()
    page.get_by_role("link", name="<i>mallory<i>").first.click()
    page.get_by_label("For", exact=True).fill("<img src=x onerror=alert(1)>")
    page.get_by_role("button", name="Make token").click()
    expect(page.get_by_role("button", name="Copy")).to_be_visible()
    token = page.locator("#token").inner_text()
    check(page)
    shot(page, "admin-token")
    accounts = zoo.coordinator.accounts
    holder = accounts.holder(token)
    assert holder is not None
    assert (holder.user.name, holder.scope) == ("<i>mallory<i>", "write")
    follow(page, "To the user")
    row = page.get_by_role("row").filter(has_text="onerror")
    assert token not in page.content()
    row.get_by_text("Revoke…").click()
    row.get_by_label("I am sure").check()
    with page.expect_event("load"):
        row.get_by_role("button", name="Revoke").click()
    expect(row).to_have_count(0)
    assert accounts.holder(token) is None
    page.goto("/ui/log?action=administered")
    expect(page.locator("tbody tr").first).to_contain_text(f"token {token.split('_')[1]}")


# -- the zoo -----------------------------------------------------------------------------------------------


def names(page: Page) -> list[str]:
    return page.locator("table.zoo .name").all_inner_texts()


def follow(page: Page, name: str) -> None:
    """Click on the first link of a name, and wait until the whole page behind it is there."""
    with page.expect_event("load"):
        page.get_by_role("link", name=name).first.click()


def test_the_table_sorts_filters_and_turns_its_pages(page: Page) -> None:
    page.goto("/ui/models?text=many-")
    expect(page.get_by_text(f"{MANY:,} models")).to_be_visible()
    follow(page, "Score")  # the best first
    scores = [float(text.split()[0]) for text in page.locator("tbody .num:nth-child(5)").all_inner_texts()]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 50
    follow(page, "Score")
    expect(page.locator("th[aria-sort=ascending]")).to_have_text(re.compile("Score"))
    first = names(page)
    follow(page, "Next")
    expect(page.get_by_role("link", name="Before")).to_be_visible()
    assert not set(first) & set(names(page))
    follow(page, "Before")
    expect(page.get_by_role("link", name="Before")).to_have_count(0)  # the first page again
    assert names(page) == first
    for order in ("value", "-value"):
        page.goto(f"/ui/models?text=many-&order={order}")
        follow(page, "Last")
        expect(page.get_by_role("link", name="Next")).to_have_count(0)
        assert page.locator("tbody .none").count() == 50  # what has no score is last, whichever way


def test_a_word_of_the_table_chooses(page: Page, zoo: Zoo) -> None:
    page.goto("/ui/models?text=transformer")
    follow(page, "language")
    assert "task=language" in page.url
    assert "text=transformer" in page.url
    follow(page, "task: language")
    assert "task" not in page.url
    page.get_by_text("More filters").click()
    page.get_by_label("Size from").fill("huge")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("alert")).to_have_text("'huge' is no size: write 500 kB or 2 GB.")


def test_two_ticked_models_are_compared(page: Page, zoo: Zoo) -> None:
    page.goto("/ui/models?task=deep")
    for box in page.get_by_role("checkbox").all():
        box.check()
    page.get_by_role("button", name="Compare the two ticked").click()
    page.wait_for_selector("#diff[data-ready]")
    expect(page.get_by_label("Lends")).to_have_value(zoo.deep[0].id)
    expect(page.get_by_label("Borrows")).to_have_value(zoo.deep[1].id)


# -- a model -----------------------------------------------------------------------------------------------


def test_the_page_of_a_model_shows_its_family_and_its_layers(page: Page, zoo: Zoo) -> None:
    record = next(record for record in zoo.family if record.more_parents)
    page.goto(f"/ui/models/{record.id}")
    family = page.locator(".family")
    expect(family.locator(".self .name")).to_have_text(record.name)
    for parent in record.parents:
        expect(family.locator(f"a.name[href$='{parent}']")).to_be_visible()
    rows = page.locator("#layers .row")
    expect(rows.first).to_contain_text("input")
    expect(page.locator("#snippet")).to_contain_text(record.id)


def test_a_model_is_pinned_and_removed_by_forms(page: Page, zoo: Zoo) -> None:
    record = register(zoo.coordinator, vgg((4, 4)), "to be removed", owner="ann")
    page.goto(f"/ui/models/{record.id}")
    page.get_by_role("button", name="Pin").click()
    expect(page.locator(".title .pinned")).to_be_visible()
    with page.expect_event("load"):
        page.get_by_role("button", name="Unpin").click()
    expect(page.locator(".title .pinned")).to_have_count(0)
    page.get_by_text("Remove…").click()
    page.get_by_label("I am sure").check()
    page.get_by_role("button", name="Remove", exact=True).click()
    expect(page.locator(".title .chip")).to_have_text("removed")
    assert zoo.coordinator.show(record.id).state == "removed"
    actions = [event.action for event in zoo.coordinator.log(model=record.id)]
    assert actions[:3] == ["removed", "unpinned", "pinned"]


def test_weights_come_down_as_they_are(page: Page, zoo: Zoo) -> None:
    record = zoo.family[0]
    page.goto(f"/ui/models/{record.id}")
    with page.expect_download() as coming:
        page.get_by_role("link", name="Download").click()
    assert coming.value.suggested_filename == f"{record.id}.safetensors"
    assert Path(coming.value.path()).read_bytes() == b"".join(zoo.coordinator.weights_bytes(record))


# -- the diff ----------------------------------------------------------------------------------------------


def test_five_thousand_rows_take_few_elements(page: Page, zoo: Zoo) -> None:
    page.goto(f"/ui/diff?parent={zoo.deep[0].id}&child={zoo.deep[1].id}")
    page.wait_for_selector("#diff[data-ready]")
    assert int(page.locator("#diff").get_attribute("data-rows") or 0) > 5000
    rows = page.locator("#diff-rows")
    fold = page.locator(".fold").first
    expect(fold).to_have_text(re.compile(r"the same 2 rows 2,49\d more times"))
    page.get_by_role("button", name="Unfold repeats").click()
    assert rows.evaluate("box => box.scrollHeight") > 5000 * 30
    rows.evaluate("box => { box.scrollTop = box.scrollHeight }")
    expect(rows.locator(".row", has_text="output").last).to_be_visible()
    assert nodes(page) < 2000
    shot(page, "diff-unfolded")
    widened = rows.locator(".do-widened")
    assert widened.count() > 0
    page.get_by_label("only what changes").check()
    assert rows.locator(".do-copied").count() == 0
    assert rows.locator(".do-widened").count() == 5


def test_the_diff_is_used_by_keyboard(page: Page, zoo: Zoo) -> None:
    parent, child = zoo.hostile[0], zoo.hostile[1]
    page.goto(f"/ui/diff?parent={parent.id}&child={child.id}")
    page.wait_for_selector("#diff[data-ready]")
    page.locator("#diff-rows").focus()
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    detail = page.locator("#diff-detail")
    expect(detail).to_be_visible()
    expect(detail.get_by_role("row")).to_have_count(1 + len(zoo.coordinator.graph(child).layers[1].tensors))
    page.get_by_label("Find a layer").fill("onerror")
    expect(page.locator("#diff-rows .hit").first).to_contain_text("onerror")


# -- what would I get --------------------------------------------------------------------------------------


def test_a_dropped_description_is_answered(page: Page, zoo: Zoo, tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    file.write_bytes(to_json(vgg((16, 32, 32))))
    before = sum(record.hits for record in zoo.coordinator.models())
    page.goto("/ui/what-if")
    page.get_by_label("Task").fill("classification")
    page.get_by_label("Data").fill("digits")
    page.locator("#file").set_input_files(file)
    lead = page.locator("#answer .lead")
    expect(lead).to_contain_text("It would start from")
    parent = lead.get_by_role("link").get_attribute("href") or ""
    assert zoo.coordinator.show(parent.rpartition("/")[2]).task == "classification"
    assert sum(record.hits for record in zoo.coordinator.models()) == before
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    page.locator("#file").set_input_files(broken)
    expect(page.get_by_role("alert")).to_contain_text("broken.json is no JSON")


# -- the log, by keyboard ----------------------------------------------------------------------------------


def test_the_log_goes_as_far_back_as_one_likes(zoo: Zoo, page: Page) -> None:
    kept = {event.number for event in zoo.coordinator.log(limit=10**6)}
    assert kept
    page.goto("/ui/log")
    assert page.locator("tbody tr").count() == min(100, len(kept))
    page.get_by_label("What").select_option("registered")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("tbody .chip").first).to_have_text("registered")


def test_all_can_be_reached_by_keyboard(page: Page) -> None:
    page.goto("/ui/models")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    for _ in range(3):
        page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Diff")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Diff")).to_be_visible()


def test_one_model_is_enough(zoo: Zoo, browser: Browser, tmp_path: Path) -> None:
    local = LocalCoordinator(Settings(home=str(tmp_path / "one")))
    record: Record = register(local, vgg((4, 4)), "only")
    with serving(local, ServiceSettings(port=0, auth=False)) as url, tab(browser, url) as page:
        for address in (
            *(f"/ui/{place}" for place in PLACES),
            f"/ui/models/{record.id}",
            f"/ui/what-if?model={record.id}",
            "/ui/health?capacity=1kB",
            f"/ui/diff?parent=only&child={record.id}",
        ):
            page.goto(address)
            loaded(page)
            check(page)
        assert "exact" in page.locator("#diff-summary").inner_text()
        assert json.loads(page.evaluate("JSON.stringify(Object.keys(localStorage))")) == []
    local.close()


@pytest.mark.slow
def test_every_page_over_postgresql(browser: Browser, postgres_url: str, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        zoo = Zoo(tmp_path, stack, catalog=postgres_url, deep=20, many=100)
        with tab(browser, zoo.url) as page:
            page.goto("/ui/models")
            page.get_by_label("Token").fill(zoo.tokens["root"])
            page.keyboard.press("Enter")
            expect(page.get_by_role("heading", name="Zoo")).to_be_visible()
            assert seen(page, addresses(zoo)) == set()
            page.goto("/ui/models?text=many-&order=-value")
            first = names(page)
            follow(page, "Next")
            expect(page.get_by_role("link", name="Before")).to_be_visible()
            assert len({*first, *names(page)}) == 100
