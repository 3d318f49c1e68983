"""What did warm starts save, and what does the zoo cost? Three kinds of evidence, never added up."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import msgspec
from fastapi import APIRouter, Request, Response
from msgspec import Struct

from modelkeeper.server.dependencies import TheService
from modelkeeper.server.ui.rendering import page
from modelkeeper.server.ui.views.access import Colleague
from modelkeeper.settings import DAY
from modelkeeper.zoo.catalog.starts import StartFilter
from modelkeeper.zoo.history.savings import ESTIMATED, KINDS, MATCHED, MEASURED, WEEK, Savings, SavingsOf

router = APIRouter()
EVIDENCE = {  # as the command line says it
    MEASURED: "at least, in races",
    MATCHED: "against cold runs of the same model",
    ESTIMATED: "if trained as advised",
}
DAYS = {"30": "30 days", "90": "90 days", "365": "a year"}
USUAL = "90"
FIELDS = ("user", "project", "task", "data")
MOST = 100  # rows of the table


class Choice(Struct, frozen=True):
    """What an address asks for, and the addresses of other choices."""

    by: str
    days: str
    only: dict[str, str]  # of FIELDS

    @classmethod
    def read(cls, asked: Mapping[str, str]) -> "Choice":
        """What an address says; what nobody offers is as if it were left out."""
        by, days = asked.get("by", WEEK), asked.get("days", USUAL)
        only = {name: asked.get(name, "").strip()[:200] for name in FIELDS}
        return cls(
            by if by in KINDS else WEEK,
            days if days in DAYS else USUAL,
            {name: value for name, value in only.items() if value},
        )

    def address(self, **other: str) -> str:
        """The address of this choice, but for what is otherwise."""
        own = {"by": self.by if self.by != WEEK else "", "days": self.days if self.days != USUAL else ""}
        chosen = {name: value for name, value in (self.only | own | other).items() if value}
        return f"/ui/savings?{urlencode(chosen)}" if chosen else "/ui/savings"

    def filter(self, now: float) -> StartFilter:
        """The starts that are meant."""
        only = self.only
        return StartFilter(
            user=only.get("user"),
            project=only.get("project"),
            task=only.get("task"),
            data=only.get("data"),
            since=now - int(self.days) * DAY,
            until=now,
        )


@router.get("/ui/savings")
async def savings(request: Request, service: TheService, who: Colleague) -> Response:
    """The page."""
    choice = Choice.read(request.query_params)
    wanted = choice.filter(time.time())
    found = await service.read(who, lambda: service.coordinator.savings(choice.by, wanted, viewer=who.viewer))
    groups = sorted(found.groups, key=lambda group: -group.starts)
    if choice.by == WEEK:
        groups = list(reversed(found.groups))
    return page(
        request,
        "savings.html",
        found=found,
        choice=choice,
        groups=groups[:MOST],
        left_out=len(groups[MOST:]),
        weeks=msgspec.json.encode(weekly(found)).decode(),
        evidence=EVIDENCE,
        days=DAYS,
        kinds=KINDS,
        fields=FIELDS,
        whole=who.viewer.all,
    )


def weekly(found: Savings) -> list[dict[str, Any]]:
    """What was saved week by week, by kind; weeks in which nothing started are there, too."""
    known = {group.name: group for group in found.weeks}
    if not known:
        return []
    monday = _monday(found.since)
    rows: list[dict[str, Any]] = []
    while monday.timestamp() < found.until:
        name = monday.strftime("%G-W%V")
        # What is left out is not 0: where starts are, the line begins with the oldest of them.
        if found.complete or rows or name in known:
            group = known.get(name, SavingsOf(name=name))
            saved = {kind: getattr(group, kind) for kind in EVIDENCE}
            rows.append({"name": name, "at": monday.timestamp(), **saved})
        monday += timedelta(days=7)
    return rows


def _monday(at: float) -> datetime:
    """When the week began that a moment lies in."""
    day = datetime.fromtimestamp(at, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day - timedelta(days=day.weekday())
