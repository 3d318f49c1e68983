"""Lines that pages draw, in a real browser: are they there, in both lights, and can everybody read them?"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.server.serve import serving
from modelkeeper.server.ui.static_files import address
from modelkeeper.settings import ServiceSettings, Settings
from tests.helpers.browsers import shot, tab
from tests.helpers.dashboards import HOSTILE

LINES: list[dict[str, Any]] = [
    {"name": "warm", "points": [[0, 0.4], [100, 0.8], [200, 0.9]]},
    {"name": "cold twin", "points": [[0, 0.1], [50, 0.3], [100, None], [150, 0.7]], "dashed": True},
]
DRAW = """async ([script, styles, options]) => {
  for (const href of styles) {
    const link = Object.assign(document.createElement("link"), { rel: "stylesheet", href });
    const ready = new Promise((done) => link.addEventListener("load", done));
    document.head.append(link);
    await ready;
  }
  const box = document.createElement("div");
  document.querySelector("main").replaceChildren(box);
  const { chart } = await import(script);
  window.drawn = chart(box, options);
}"""
# How many points of the picture have each colour, as #rrggbb; read from a copy.
INKS = """() => {
  const shown = document.querySelector(".plot canvas");
  const copy = new OffscreenCanvas(shown.width, shown.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(shown, 0, 0);
  const { data } = copy.getImageData(0, 0, shown.width, shown.height);
  const found = {};
  for (let at = 0; at < data.length; at += 4) {
    if (data[at + 3] < 255) continue;
    const ink = "#" + [0, 1, 2].map((part) => data[at + part].toString(16).padStart(2, "0")).join("");
    found[ink] = (found[ink] ?? 0) + 1;
  }
  return found;
}"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    local = LocalCoordinator(Settings(home=str(tmp_path_factory.mktemp("charts") / "zoo")))
    with serving(local, ServiceSettings(port=0, auth=False)) as found:
        yield found
    local.close()


def draw(page: Page, lines: list[dict[str, Any]], **options: Any) -> None:
    """A chart alone on a page of the service, under the policy of all pages."""
    page.goto("/ui/health")
    options = {"x": {"name": "step"}, "y": {"name": "accuracy"}, **options, "lines": lines}
    styles = [address("vendor/uPlot.min.css"), address("charts.css")]
    page.evaluate(DRAW, [address("charts.js"), styles, options])


def inks(page: Page) -> dict[str, int]:
    found: dict[str, int] = page.evaluate(INKS)
    return found


def colour(page: Page, token: str) -> str:
    return str(
        page.evaluate("name => getComputedStyle(document.documentElement).getPropertyValue(name)", token)
    )


def test_lines_are_drawn_in_the_colours_of_day_and_night(url: str, browser: Browser) -> None:
    with tab(browser, url, color_scheme="light") as page:
        draw(page, LINES)
        seen = []
        for light in ("light", "dark"):
            scheme: Any = light
            page.emulate_media(color_scheme=scheme)
            first, second = colour(page, "--accent"), colour(page, "--inserted")
            page.wait_for_function(f"() => ({INKS})()['{first}'] > 20")
            assert inks(page).get(second, 0) > 20
            seen.append({first, second})
            shot(page, f"chart-{light}")
        assert not seen[0] & seen[1]


def test_values_are_read_by_keys_by_mouse_and_in_a_table(url: str, browser: Browser) -> None:
    with tab(browser, url) as page:
        draw(page, LINES, y={"name": "accuracy", "unit": "%"})
        legend = page.locator(".chart-legend")
        expect(legend).to_have_text("warm 0.9 %cold twin 0.7 %last")
        plot = page.get_by_role("group", name="accuracy by step. warm, 0.4 % at 0, 0.9 % at 200")
        plot.focus()
        page.keyboard.press("ArrowRight")
        expect(legend).to_have_text("warm 0.4 %cold twin 0.1 %at 0")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        expect(legend).to_have_text("warm 0.8 %cold twin –at 100")
        page.keyboard.press("End")
        expect(legend).to_have_text("warm 0.9 %cold twin –at 200")
        page.keyboard.press("Escape")
        expect(legend).to_contain_text("last")
        over = page.locator(".u-over").bounding_box()
        assert over is not None
        page.mouse.move(over["x"] + 2, over["y"] + 20)
        expect(legend).to_contain_text("at 0")
        assert page.locator(".chart-table tr").count() == 0  # no elements that nobody asked for
        page.get_by_text("As a table").click()
        expect(page.locator(".chart-table tr")).to_have_count(6)
        rows = page.locator(".chart-table tr").all_inner_texts()
        assert [row.split("\t") for row in rows] == [
            ["step", "warm", "cold twin"],
            ["0", "0.4 %", "0.1 %"],
            ["50", "", "0.3 %"],
            ["100", "0.8 %", ""],
            ["150", "", "0.7 %"],
            ["200", "0.9 %", ""],
        ]


@pytest.mark.parametrize(
    "points", [[], [[5, 0.5]], [[0, 0], [1, 0]], [[0, -3e9], [1, 2e9]], [[0, None], [1, None]]]
)
def test_few_and_odd_points_are_drawn_too(url: str, browser: Browser, points: Any) -> None:
    with tab(browser, url) as page:
        draw(page, [{"name": "only", "points": points}])
        expect(page.locator(".plot canvas")).to_be_visible()
        page.evaluate("() => { drawn.show([]); drawn.show([{ name: 'a', points: [[1, 2]] }]) }")
        expect(page.locator(".chart-legend")).to_have_text("a 2last")


def test_times_are_written_in_utc(url: str, browser: Browser) -> None:
    with tab(browser, url, timezone_id="Pacific/Auckland") as page:
        points = [[1_700_000_000, 1], [1_700_604_800, 2]]
        for time, last in (("days", "2023-11-21"), ("minutes", "2023-11-21 22:13")):
            draw(page, [{"name": "a", "points": points}], x={"name": "week", "time": time}, y={"name": "n"})
            page.locator(".plot").focus()
            page.keyboard.press("End")
            expect(page.locator(".where")).to_have_text(f"at {last}")


def test_a_chart_fits_a_small_screen_and_hostile_names(url: str, browser: Browser) -> None:
    with tab(browser, url, viewport={"width": 900, "height": 640}) as page:
        draw(page, [{"name": name, "points": [[0, 1], [1, 2]]} for name in HOSTILE])
        wide = page.evaluate("drawn.plot.width")
        page.set_viewport_size({"width": 360, "height": 640})
        page.wait_for_function(f"() => drawn.plot.width < {wide} - 400")
        page.get_by_text("As a table").click()
        assert page.locator(".chart-legend bdi").all_text_contents() == list(HOSTILE)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_what_others_wrote_reads_no_markup() -> None:
    """The content policy refuses a page that does, and an old browser would run it."""
    folder = Path(__file__).parents[3] / "src/modelkeeper/server/ui/static/vendor"
    text = (folder / "uPlot.esm.js").read_text()
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert word not in text
