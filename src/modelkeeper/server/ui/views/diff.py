"""Two models, layer against layer: what would the one lend to the other?

The borrower may be a model of the zoo as it would be at another size: `width` and `blocks`, as the sliders of
"What would I get" have them.
"""

from collections.abc import Callable
from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request, Response
from msgspec.json import encode

from modelkeeper.errors import InvalidMeta, ModelKeeperError
from modelkeeper.server.comparisons import Comparison
from modelkeeper.server.dependencies import TheService
from modelkeeper.server.ui import details
from modelkeeper.server.ui.comparing import told
from modelkeeper.server.ui.rendering import page
from modelkeeper.server.ui.resizing import read_sizes, resized, written_sizes
from modelkeeper.server.ui.views.access import Visitor
from modelkeeper.zoo.records import Record, is_id

router = APIRouter()
Named = Annotated[str, Query(max_length=200)]
Ids = Annotated[str, Query(pattern="^[0-9a-f]{16}$")]
Several = Annotated[list[str] | None, Query(max_length=64)]
Number = Annotated[int, Query(ge=0, le=2**31)]


@router.get("/ui/diff")
async def diff(
    request: Request,
    service: TheService,
    who: Visitor,
    parent: Named = "",
    child: Named = "",
    model: Several = None,
    width: Named = "",
    blocks: Several = None,
) -> Response:
    """The page; two models that were ticked in the zoo are the older and the newer one."""
    coordinator = service.coordinator
    problems: list[str] = []

    def find(name: str) -> Record | None:
        try:
            return coordinator.show(name.strip(), who.viewer) if name.strip() else None
        except ModelKeeperError as problem:
            problems.append(str(problem))
            return None

    def both() -> tuple[Record | None, Record | None]:
        if model:
            ticked = coordinator.known([name for name in model if is_id(name)], who.viewer).values()
            if len(ticked) != 2:
                problems.append(f"Tick two models to compare: {len(ticked)} are ticked.")
            older, newer, *_ = (*sorted(ticked, key=lambda record: record.key)[:2], None, None)
            return older, newer
        return find(parent), find(child)

    try:
        sizes = read_sizes(width, blocks or ())
    except InvalidMeta as problem:
        problems.append(str(problem))
        sizes = (1.0, ())
    lender, borrower = await service.read(who, both)
    asked = (lender.id if lender else parent, borrower.id if borrower else child)
    said = {"parent": asked[0], "child": asked[1]} | written_sizes(*sizes)
    return page(
        request,
        "diff.html",
        lender=lender,
        borrower=borrower,
        asked=asked,
        sizes=written_sizes(*sizes),
        query=urlencode(said),
        problems=problems,
    )


class Compared:
    """The two models that a request names, compared; remembered for the requests that follow."""

    def __init__(
        self,
        request: Request,
        service: TheService,
        who: Visitor,
        parent: Ids,
        child: Ids,
        width: Named = "",
        blocks: Several = None,
    ) -> None:
        self._request, self._service, self._who = request, service, who
        self._names, self._sizes = (parent, child), read_sizes(width, blocks or ())

    def _found(self) -> Comparison:
        """Who may see the models is asked anew each time."""
        coordinator, comparisons = self._service.coordinator, self._service.comparisons
        lender, borrower = (coordinator.show(name, self._who.viewer) for name in self._names)
        if self._sizes == (1.0, ()):
            return comparisons.of(lender, borrower)
        width, blocks = self._sizes
        return comparisons.of(lender, borrower, self._sizes, lambda graph: resized(graph, width, blocks))

    async def told(self, tell: Callable[[Comparison], bytes]) -> Response:
        """What there is to say of it, as JSON."""
        run, user = self._service.matching.run, self._who.user.name
        body = await run(user, lambda: tell(self._found()), self._request.is_disconnected)
        return Response(body, media_type="application/json")


Both = Annotated[Compared, Depends()]


@router.get("/ui/diff.json")
async def rows(both: Both) -> Response:
    """The rows of the page."""
    return await both.told(lambda found: found.once("columns", lambda found: encode(told(found))))


@router.get("/ui/diff/layer.json")
async def layer(both: Both, row: Number) -> Response:
    """What becomes of each tensor of a row, axis by axis."""
    return await both.told(lambda found: encode(details.layer(found, row)))


@router.get("/ui/diff/space.json")
async def space(both: Both, space: Number, side: Literal["parent", "child"] = "child") -> Response:
    """Every layer that must widen with an axis."""
    return await both.told(lambda found: encode(details.space(found, side, space)))
