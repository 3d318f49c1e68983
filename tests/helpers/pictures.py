"""The pictures of docs/dashboard.md: a small zoo, a browser, and a window of each page.

python -m tests.helpers.pictures        writes docs/images/dashboard-*.png (`make pictures`)
"""

import contextlib
import tempfile
from pathlib import Path

from playwright.sync_api import Page

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.frontends.torch import describe
from modelkeeper.meta import Query
from modelkeeper.server.serve import serving
from modelkeeper.settings import ServiceSettings, Settings
from tests.helpers.browsers import launched, tab
from tests.helpers.dashboards import age, fill_family, keep_busy
from tests.helpers.families import FAMILIES, INPUTS
from tests.helpers.generated import resnet
from tests.helpers.vendored import ROOT
from tests.helpers.zoos import register

IMAGES = ROOT / "docs" / "images"
WINDOW = {"width": 1100, "height": 640}


def main() -> None:
    """Make the pictures."""
    with contextlib.ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory())
        local = LocalCoordinator(
            Settings(home=str(Path(home) / "zoo"), capacity=12_000_000, minimum_peers=99)
        )
        stack.callback(local.close)
        family = fill_family(local, 30)
        age(local, family, 80)
        keep_busy(local, 24, every=5)
        deep = register(local, resnet((12, 12), 8), "resnet-deep", 0.91, owner="ada", owner_id="a")
        deeper = resnet((18, 18), 12)
        child = register(local, deeper, "resnet-deeper", 0.94, owner="ada", owner_id="a", parent=deep.id)
        lent, taken = (
            register(local, describe(FAMILIES["residual"](width, depth), INPUTS["residual"]), name, 0.9)
            for width, depth, name in ((16, 8, "residual16"), (24, 10, "residual24"))
        )
        local.query(resnet((2, 2), 40), Query(task="classification", data="fashion-mnist"))
        url = stack.enter_context(serving(local, ServiceSettings(port=0, auth=False)))
        browser = stack.enter_context(launched())
        kin = max(family, key=lambda record: len(local.tree(record.id).ancestors) * bool(record.more_parents))
        twin = max(family, key=lambda record: (local.curves(record).twins, len(local.children(record))))
        pages = {
            "zoo": "/ui/models?order=-value",
            "model": f"/ui/models/{kin.id}",
            "diff": f"/ui/diff?parent={lent.id}&child={taken.id}",
            "map": "/ui/map?colour=family&lineage=1",
            "what-if": f"/ui/what-if?model={child.id}",
            "training": f"/ui/models/{twin.id}",
            "savings": "/ui/savings?by=user",
            "health": "/ui/health",
        }
        for name, address in pages.items():
            light = "dark" if name == "diff" else "light"
            with tab(browser, url, viewport=WINDOW, color_scheme=light) as page:
                page.goto(address)
                if name == "map":
                    page.wait_for_selector("#map[data-ready]")
                page.wait_for_load_state("networkidle")
                if name == "diff":
                    look_closer(page)
                if name == "training":
                    page.locator("section", has=page.locator("#curve")).evaluate(
                        "part => part.scrollIntoView()"
                    )
                page.screenshot(path=IMAGES / f"dashboard-{name}.png")


def look_closer(page: Page) -> None:
    """Show what becomes of a layer, and what widens with its outputs, in a window high enough for both."""
    page.set_viewport_size({"width": WINDOW["width"], "height": 1180})
    page.locator("#diff-rows .row").nth(3).click()
    page.locator(".axes button").first.click()
    page.locator(".space-of h3").wait_for()
    page.mouse.move(0, 0)


if __name__ == "__main__":
    main()
