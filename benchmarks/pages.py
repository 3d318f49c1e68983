"""How long does a service take for each page of the dashboard at 100,000 models? `make pages`

A catalog of made-up records (see `helpers.synthetic_zoo`) on SQLite and on PostgreSQL, a service over it, an
administrator and a reader who each logged in. Every page of PAGES is asked for over HTTP, several times: the
median and the slowest, in milliseconds, and the median CPU time of service and database together, which
counts less of what else runs on the machine. Written to benchmarks/results/pages.json. A new page is a line
of PAGES.
"""

import argparse
import contextlib
import json
import os
import platform
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import sqlalchemy as sa

from benchmarks.helpers.databases import zoo_on
from benchmarks.helpers.synthetic_zoo import Architectures, fill, make_architectures
from benchmarks.keeping import cpu_of
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.server.serve import serving
from modelkeeper.settings import ServiceSettings, Settings
from modelkeeper.zoo.database.schema import parents
from modelkeeper.zoo.records import Filter

RESULTS = Path(__file__).parent / "results"
TARGET = 200.0  # milliseconds
PAGES = {  # {-value} is the id of the model three quarters down the list in that order
    "zoo, newest first": "/ui/models",
    "zoo, newest first, deep": "/ui/models?after={-created}",
    "zoo, newest first, last page": "/ui/models?before=end",
    "zoo, oldest first, deep": "/ui/models?order=created&after={created}",
    "zoo, best first": "/ui/models?order=-value",
    "zoo, best first, deep": "/ui/models?order=-value&after={-value}",
    "zoo, worst first, last page": "/ui/models?order=value&before=end",
    "zoo, by name, deep": "/ui/models?order=name&after={name}",
    "zoo, by task, deep": "/ui/models?order=task&after={task}",
    "zoo, largest first, deep": "/ui/models?order=-bytes&after={-bytes}",
    "zoo, most lent, deep": "/ui/models?order=-hits&after={-hits}",
    "zoo, a task": "/ui/models?task=retrieval&order=-value",
    "zoo, an owner and a tag": "/ui/models?owner=ann&tag=nightly",
    "zoo, few by text": "/ui/models?text=a0b",
    "zoo, few by score": "/ui/models?least_value=0.985&order=-bytes",
    "zoo, few by everything": "/ui/models?text=a&task=retrieval&owner=eve&tag=nightly&least_bytes=1MB"
    "&least_value=0.95&order=-hits&state=all",
    "zoo, none at all": "/ui/models?text=nobody+calls+a+model+so",
    "model": "/ui/models/{-created}",
    "model, most children": "/ui/models/{parent}",
    "model, its layers": "/ui/models/{-created}/layers.json",
    "model, its curves": "/ui/models/{-created}/curves.json",
    "diff, nothing chosen": "/ui/diff",
    "diff of two models": "/ui/diff?parent={-created}&child={created}",
    "what would I get": "/ui/what-if",
    "what would I get, a model": "/ui/what-if?model={-created}",
    "map": "/ui/map",
    "savings": "/ui/savings",
    "savings by user, a year": "/ui/savings?by=user&days=365",
    "log": "/ui/log",
    "log, registered": "/ui/log?action=registered",
    "health": "/ui/health",
    "admin": "/ui/admin",
    "tree, most children": "/v1/models/{parent}/tree",
    "models by cursor": "/v1/models?after={-created}",
}
ADMINS = ("admin",)  # which nobody else may see


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description="How long does each page take?")
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--architectures", type=int, default=1_000)
    parser.add_argument("--databases", nargs="+", default=["SQLite", "PostgreSQL"])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, default=RESULTS / "pages.json")
    options = parser.parse_args()
    made = make_architectures(options.architectures)
    report: dict[str, Any] = {
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()},
        "models": options.records,
        "architectures": options.architectures,
        "databases": {},
    }
    for database in options.databases:
        with catalog(database, made, options.records) as (settings, server):
            report["databases"][database] = measure(settings, server, options.repeats)
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    slow = [
        f"{database}, {user}: {name} {row['p50']:g} ms"
        for database, users in report["databases"].items()
        for user, rows in users.items()
        for name, row in rows.items()
        if row["p50"] > TARGET
    ]
    print(f"more than {TARGET:g} ms: {', '.join(slow) or 'none'}")


@contextlib.contextmanager
def catalog(database: str, made: Architectures, records: int) -> Iterator[tuple[Settings, int | None]]:
    """The settings of a zoo with so many records, and the process of its database, if it has one."""
    with zoo_on(database) as (settings, server):
        empty = LocalCoordinator(settings)
        empty.zoo.expect_own_store()  # before there are records of which it has no files
        empty.close()
        fill(settings.catalog_place, made, records)
        yield settings, server


def measure(settings: Settings, server: int | None, repeats: int) -> dict[str, Any]:
    """The milliseconds of every page, for an administrator and for a reader."""
    local = LocalCoordinator(settings)
    number = local.count() * 3 // 4
    orders = ("created", "-created", "value", "-value", "name", "task", "-bytes", "-hits")
    deep = {order: local.models(Filter(), order=order, limit=1, offset=number)[0].id for order in orders}
    by_children = sa.select(parents.c.parent).group_by(parents.c.parent).order_by(sa.func.count().desc())
    with local.zoo.catalog.database.reading() as connection:
        deep["parent"] = connection.scalar(by_children.limit(1)) or deep["-created"]
    found: dict[str, Any] = {}
    try:
        with serving(local, ServiceSettings(port=0, rate=10**6)) as url:
            wait_for(url)  # the index is read before, not meanwhile
            for user, scope in (("root", "admin"), ("reader", "read")):
                local.accounts.add_user(user)
                token = local.accounts.add_token(user, scope)
                with httpx.Client(
                    base_url=url, headers={"accept": "text/html", "origin": url}, timeout=60
                ) as line:
                    line.post("/ui/login", data={"token": token}, follow_redirects=True).raise_for_status()
                    bearer = {"authorization": f"Bearer {token}"}
                    found[user] = {
                        name: timed(
                            line,
                            address.format(**deep),
                            server,
                            repeats,
                            bearer if address.startswith("/v1") else {},
                        )
                        for name, address in PAGES.items()
                        if scope == "admin" or name not in ADMINS
                    }
                print(json.dumps({user: found[user]}, indent=1), flush=True)
    finally:
        local.close()
    return found


def wait_for(url: str, most: float = 600) -> None:
    """Return when a service is ready."""
    end = time.monotonic() + most
    while httpx.get(f"{url}/readyz", timeout=most).status_code != 200:
        if time.monotonic() > end:
            raise TimeoutError(f"{url} is not ready after {most:g} s")
        time.sleep(0.2)


def timed(
    line: httpx.Client, address: str, server: int | None, repeats: int, headers: dict[str, str]
) -> dict[str, float]:
    """Milliseconds of one page; the first time does not count, since it may open what others find open."""
    spent, busy = [], []
    for turn in range(repeats + 1):
        cpu, began = time.process_time() + cpu_of(server), time.perf_counter()
        reply = line.get(address, headers=headers)
        if turn:
            spent.append(1000 * (time.perf_counter() - began))
            busy.append(1000 * (time.process_time() + cpu_of(server) - cpu))
        reply.raise_for_status()
    return {
        "p50": round(statistics.median(spent), 1),
        "slowest": round(max(spent), 1),
        "cpu": round(statistics.median(busy), 1),
        "bytes": len(reply.content),
    }


if __name__ == "__main__":
    main()
