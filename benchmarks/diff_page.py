"""How soon can one look at two models of 5,000 layers side by side? `make diff-page`

Two pairs of models, each some 5,000 rows long: convolutions in a row, and residual blocks whose widths are
spaces. Cold is a service that has just started and has read no graph; warm is the same pair once more. For
each: seconds (also of CPU) and bytes of the rows over HTTP; seconds in Chromium from going to the page until
its rows stand there (`#diff[data-ready]`), in a browser that knows no file of the page (cold) and in one that
does (warm); how many elements the page has, folded and unfolded. And by themselves the CPU seconds of a
comparison, of its columns, and of the lanes of all wires. Minimum and median of several. Written to
benchmarks/results/diff_page.json.
"""

import argparse
import contextlib
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Page

from benchmarks.helpers.wiring import vgg
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.frontends.torch import describe
from modelkeeper.graph import Graph
from modelkeeper.graph.resize import resize
from modelkeeper.server.comparisons import compare
from modelkeeper.server.serve import serving
from modelkeeper.server.ui.comparing import told, wires
from modelkeeper.settings import ServiceSettings, Settings
from tests.helpers.browsers import launched, tab
from tests.helpers.families import FAMILIES, INPUTS
from tests.helpers.service import probe
from tests.helpers.zoos import register

RESULTS = Path(__file__).parent / "results"
ROWS = 5000
TARGET = 1.5  # seconds until the rows stand there
TARGET_LANES = 0.05
MOST_NODES = 2000
COUNT = "document.querySelectorAll('*').length"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description="How soon do two large models stand side by side?")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, default=RESULTS / "diff_page.json")
    options = parser.parse_args()
    report: dict[str, Any] = {
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()},
        "repeats": options.repeats,
        "pairs": {},
    }
    with launched() as browser:
        for name, (parent, child) in pairs().items():
            report["pairs"][name] = measure(parent, child, browser, options.repeats)
            print(json.dumps({name: report["pairs"][name]}, indent=1), flush=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    missed = [
        f"{name}: {what} {value:g}"
        for name, row in report["pairs"].items()
        for what, value, most in (
            ("cold page", row["page, cold"]["median"], TARGET),
            ("warm page", row["page, warm"]["median"], TARGET),
            ("lanes", row["lanes"]["median"], TARGET_LANES),
            ("nodes", row["nodes, unfolded"], MOST_NODES),
        )
        if value > most
    ]
    print(f"missed: {', '.join(missed) or 'none'}")


def pairs() -> dict[str, tuple[Graph, Graph]]:
    """Two models each, of as many layers as there are to be rows."""
    half = ROWS // 2
    narrow, wide = (describe(FAMILIES["residual"](width, 3), INPUTS["residual"]) for width in (8, 16))
    blocks = ROWS // ((len(narrow.layers) - 3) // 3)
    return {
        "convolutions in a row": (vgg((8,) * half), vgg((8,) * (half - 2) + (16,) * 2)),
        "residual blocks": (resize(narrow, blocks=(blocks,)), resize(wide, blocks=(blocks,))),
    }


def measure(parent: Graph, child: Graph, browser: Browser, repeats: int) -> dict[str, Any]:
    """All figures of one pair."""
    found = compare(parent, child, same_task=True, seconds=600)
    columns = [row.child for row in found.rows]
    figures: dict[str, Any] = {
        "rows": len(found.rows),
        "comparing": several(lambda: compare(parent, child, same_task=True, seconds=600), repeats),
        "columns": several(lambda: told(found), repeats),
        "lanes": several(lambda: wires(child, columns), repeats),
    }
    spent: dict[str, list[float]] = {
        f"{what}, {kind}": [] for what in ("rows", "CPU of rows", "page") for kind in ("cold", "warm")
    }
    with tempfile.TemporaryDirectory(prefix="modelkeeper-diff-") as home:
        settings = Settings(home=home, minimum_peers=10**6)
        with contextlib.closing(LocalCoordinator(settings)) as local:
            ids = [register(local, graph, name).id for name, graph in (("a", parent), ("b", child))]
        query = f"parent={ids[0]}&child={ids[1]}"
        for _ in range(repeats):
            with started(settings) as url, httpx.Client(base_url=url, timeout=600) as line:
                for kind in ("cold", "warm"):
                    began = time.process_time()
                    seconds, reply = timed(lambda line=line: line.get(f"/ui/diff.json?{query}"))  # type: ignore[misc]
                    spent[f"CPU of rows, {kind}"].append(time.process_time() - began)
                    spent[f"rows, {kind}"].append(seconds)
                    reply.raise_for_status()
                    figures["bytes"] = len(reply.content)
            with started(settings) as url, tab(browser, url) as page:
                for kind in ("page, cold", "page, warm"):
                    seconds, _ = timed(lambda page=page: shown(page, f"/ui/diff?{query}"))  # type: ignore[misc]
                    spent[kind].append(seconds)
                figures |= nodes(page)
    return figures | {kind: summed(seconds) for kind, seconds in spent.items()}


@contextlib.contextmanager
def started(settings: Settings) -> Iterator[str]:
    """A service that has just started."""
    with contextlib.ExitStack() as stack:
        local = stack.enter_context(contextlib.closing(LocalCoordinator(settings)))
        url = stack.enter_context(serving(local, ServiceSettings(port=0, auth=False)))
        probe(url)
        yield url


def shown(page: Page, address: str) -> None:
    """Go to the page, until its rows stand there."""
    page.goto(address, wait_until="commit")
    page.wait_for_selector("#diff[data-ready]")


def nodes(page: Page) -> dict[str, int]:
    """How many elements a page has, and when all rows can be scrolled through, in their middle."""
    folded = page.evaluate(COUNT)
    page.get_by_role("button", name="Unfold repeats").click()
    page.locator("#diff-rows").evaluate("box => { box.scrollTop = box.scrollHeight / 2 }")
    page.wait_for_timeout(200)
    return {"nodes, folded": folded, "nodes, unfolded": page.evaluate(COUNT)}


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """The seconds of one call, and what it gave."""
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def several(work: Callable[[], Any], repeats: int) -> dict[str, float]:
    """The CPU seconds of several calls, which count less of what else runs on the machine."""
    spent = []
    for _ in range(repeats):
        began = time.thread_time()
        work()
        spent.append(time.thread_time() - began)
    return summed(spent)


def summed(seconds: list[float]) -> dict[str, float]:
    """Their minimum and median."""
    return {"minimum": round(min(seconds), 4), "median": round(statistics.median(seconds), 4)}


if __name__ == "__main__":
    main()
