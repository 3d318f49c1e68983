"""What came of a model? Who started from it, and what each of them gained, a page at a time.

past = past_of(coordinator, record, who.viewer, request.query_params)

Partners are not told: see `Colleague`.
"""

import re
from collections.abc import Mapping
from urllib.parse import urlencode

from msgspec import Struct

from modelkeeper.coordinator.base import ServedCoordinator
from modelkeeper.zoo.history.children import Child
from modelkeeper.zoo.history.past_loans import PastLoan
from modelkeeper.zoo.records import Record, Viewer, is_id

SIZE = 20  # children, and loans, on a page
CHILDREN, LOANS = "children", "loans"  # what an address calls where a page of each begins


class Past(Struct, frozen=True, kw_only=True):
    """Of children and loans one page each, and the addresses of others; "": there is none."""

    drawn: bool  # is it known how its training went?
    children: list[Child]
    loans: list[PastLoan]
    models: dict[str, Record]  # what came of the loans, as far as it may be seen
    older: dict[str, str]  # of CHILDREN and of LOANS
    newest: dict[str, str]


def past_of(coordinator: ServedCoordinator, record: Record, viewer: Viewer, asked: Mapping[str, str]) -> Past:
    """What came of a model, from where an address says; an address that says it wrongly is of the newest."""
    at = {
        CHILDREN: asked.get(CHILDREN, "") if is_id(asked.get(CHILDREN, "")) else "",
        LOANS: asked.get(LOANS, "") if re.fullmatch("[0-9]{1,18}", asked.get(LOANS, "")) else "",
    }
    children = coordinator.children(record, limit=SIZE + 1, before=at[CHILDREN] or None, viewer=viewer)
    before = int(at[LOANS]) if at[LOANS] else None
    loans = coordinator.loans(record, limit=SIZE + 1, before=before, viewer=viewer)
    became = coordinator.known(sorted({loan.model for loan in loans[:SIZE] if loan.model}), viewer)

    def address(what: str, begins: str) -> str:
        chosen = urlencode({name: value for name, value in (at | {what: begins}).items() if value})
        return f"/ui/models/{record.id}?{chosen}#{what}"

    older = {CHILDREN: "", LOANS: ""}
    if len(children) > SIZE:
        older[CHILDREN] = address(CHILDREN, children[SIZE - 1].id)
    if len(loans) > SIZE:
        older[LOANS] = address(LOANS, str(loans[SIZE - 1].number))
    return Past(
        drawn=coordinator.curve(record) is not None,
        children=children[:SIZE],
        loans=loans[:SIZE],
        models=became,
        older=older,
        newest={what: address(what, "") if begins else "" for what, begins in at.items()},
    )
