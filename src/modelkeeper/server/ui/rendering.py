"""How does a page become HTML? Templates in which everything is escaped, and headers that bind the browser.

return page(request, "zoo.html", records=records)
"""

import functools
import time
from datetime import UTC, datetime
from typing import Any

import jinja2
from fastapi import Request
from fastapi.responses import HTMLResponse

import modelkeeper
from modelkeeper import text
from modelkeeper.server.service import Service
from modelkeeper.server.ui.static_files import address
from modelkeeper.zoo.accounts.holders import ADMIN, PARTNER, READ, Holder
from modelkeeper.zoo.records import Record

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
PAGES = (  # what the navigation shows
    ("/ui/models", "Zoo"),
    ("/ui/diff", "Diff"),
    ("/ui/map", "Map"),
    ("/ui/what-if", "What would I get"),
    ("/ui/savings", "Savings"),
    ("/ui/log", "Log"),
    ("/ui/health", "Health"),
)
HISTORY = ("/ui/savings",)  # of which others than our own are told nothing
ADMINISTRATION = ("/ui/admin", "Admin")  # for administrators, where there are users


def page(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """A page of a template, for whoever asks."""
    service: Service = request.app.state.service
    holder = request.state.holder
    shared = {
        "holder": holder if service.settings.auth else None,
        "nav": _navigation(service, holder),
        "here": request.url.path,
        "partner": holder is not None and holder.scope == PARTNER,
        "version": modelkeeper.__version__,
        "now": time.time(),
        "status": status,
        "request_id": request.state.request,
    }
    return HTMLResponse(_templates().get_template(template).render(shared | values), status)


def _navigation(service: Service, holder: Holder | None) -> tuple[tuple[str, str], ...]:
    if holder is None or not holder.may(READ):
        return ()
    if holder.scope == PARTNER:
        return tuple(entry for entry in PAGES if entry[0] not in HISTORY)
    return (*PAGES, ADMINISTRATION) if service.settings.auth and holder.may(ADMIN) else PAGES


@functools.cache
def _templates() -> jinja2.Environment:
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("modelkeeper.server.ui"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(
        size=text.size,
        count=text.count,
        ago=lambda at, now: text.ago(now - at),
        date=date,
        number=number,
        duration=duration,
        score=score,
        words=lambda name: name.replace("_", " "),
    )
    templates.globals.update(static=address)
    return templates


def date(at: float) -> str:
    """A time for people."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def number(value: float) -> str:
    """A number as short as it can be without a loss that anybody would see."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def duration(seconds: float) -> str:
    """How long something took, or how much less; 7,300 seconds are 2.0 h."""
    sign, left = "−" if seconds < 0 else "", abs(seconds)
    shorter = (("s", 1, 120), ("min", 60, 120), ("h", 3600, 48))
    fits = ((left / length, unit) for unit, length, most in shorter if left < length * most)
    amount, unit = next(fits, (left / 86400, "d"))
    written = f"{amount:.2g}" if amount < 1 else f"{amount:.1f}" if amount < 10 else f"{amount:,.0f}"
    return f"{sign}{written} {unit}"


def score(record: Record) -> str:
    """How good a model is said to be; "": nobody said."""
    return "" if record.value is None else number(record.value)
