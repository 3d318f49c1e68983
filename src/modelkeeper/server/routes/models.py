"""Which models are there? The routes that list, show, download, remove and pin them."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse

from modelkeeper.coordinator.lineage import Lineage
from modelkeeper.coordinator.wire import MAX_LISTED, Signed, Told
from modelkeeper.errors import InvalidMeta
from modelkeeper.graph.wire import Document
from modelkeeper.policy.credit import Credit
from modelkeeper.server.bodies import STREAMED, gives, read_json, reply, stream_reply, takes, wanted_range
from modelkeeper.server.dependencies import Colleague, Id, Reader, TheService, Writer
from modelkeeper.zoo.files.blobs import WEIGHTS
from modelkeeper.zoo.records import SORTABLE, STATES, STORED, Filter, Record, checked_name
from modelkeeper.zoo.restriction import Restriction

router = APIRouter(tags=["models"])
Name = Annotated[str, Query(max_length=200)]
Several = Annotated[list[str] | None, Query(max_length=64)]
Size = Annotated[int, Query(ge=0, le=2**60)]
Score = Annotated[float, Query(allow_inf_nan=False)]
Place = Annotated[str, Query(pattern="^([0-9a-f]{16})?$")]  # the id of a model


async def _filter(
    who: Reader,
    task: Name | None = None,
    data: Name | None = None,
    text: Name | None = None,
    owner: Several = None,
    project: Several = None,
    signed: bool = False,
    licence: Several = None,
    tag: Several = None,
    state: Annotated[list[str] | None, Query(max_length=8)] = None,
    least_bytes: Size | None = None,
    most_bytes: Size | None = None,
    least_value: Score | None = None,
    most_value: Score | None = None,
) -> Filter:
    """Which models are wanted, of those that the caller may see."""
    if unknown := set(state or ()) - set(STATES):
        raise InvalidMeta("state", repr(unknown.pop()[:40]), f"choose of {', '.join(STATES)}")
    return Filter(
        viewer=who.viewer,
        states=tuple(state) if state else STORED,
        task=_name("task", task),
        data=_name("data", data),
        text=_name("text", text),
        tags=_names("tag", tag),
        least_bytes=least_bytes,
        most_bytes=most_bytes,
        least_value=least_value,
        most_value=most_value,
        restrictions=(
            Restriction(
                owners=_names("owner", owner),
                projects=_names("project", project),
                signed=signed,
                licences=_names("licence", licence),
            ),
        ),
    )


def _names(what: str, texts: list[str] | None) -> tuple[str, ...]:
    return tuple(checked_name(what, text, empty=False) for text in texts or ())


def _name(what: str, text: str | None) -> str | None:
    return None if text is None else checked_name(what, text)


Wanted = Annotated[Filter, Depends(_filter)]


@router.get("/models", responses=gives(list[Record]))
async def models(
    service: TheService,
    who: Reader,
    wanted: Wanted,
    order: Annotated[str, Query(max_length=40)] = "-created",
    limit: Annotated[int, Query(ge=1, le=MAX_LISTED)] = 100,
    offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
    after: Place = "",
    before: Place = "",
) -> Response:
    """Records of models that may be seen; those that follow the model `after` or come right `before` it.

    To go on where a reply ended, give the id of its last model as `after`: each page costs the same, and none
    is left out or comes twice when others come meanwhile. `offset` is for clients that know nothing else.
    """
    if order.removeprefix("-") not in SORTABLE:
        raise InvalidMeta("order", repr(order), "give a field of a record, - in front for descending")
    if bool(after) + bool(before) + bool(offset) > 1:
        raise InvalidMeta("after, before, offset", "several", "give one of them")
    coordinator = service.coordinator

    def find() -> list[Record]:
        if after or before:
            return coordinator.page(wanted, order=order, limit=limit, after=after, before=before).records
        return coordinator.models(wanted, order=order, limit=limit, offset=offset)

    return reply(await service.read(who, find))


@router.get("/count", responses=gives(int))
async def count(service: TheService, who: Reader, wanted: Wanted) -> Response:
    """How many models that may be seen there are."""
    return reply(await service.read(who, lambda: service.coordinator.count(wanted)))


@router.get("/find", responses=gives(Record))
async def find(name: Name, service: TheService, who: Reader) -> Response:
    """The model with this id, the newest of this name, or the only one whose id begins so.

    `ada/resnet20` is one of ada's, or of project ada. A bare name is mine, else one of my projects', else
    another's, as the record's notes say.
    """
    checked_name("name", name, empty=False)
    return reply(await service.read(who, lambda: service.coordinator.show(name, who.viewer)))


@router.get("/models/{model}", responses=gives(Record))
async def show(model: Id, service: TheService, who: Reader) -> Response:
    """One record."""
    return reply(await service.read(who, lambda: service.coordinator.show(model, who.viewer)))


@router.get("/models/{model}/tree", responses=gives(Lineage))
async def tree(model: Id, service: TheService, who: Reader) -> Response:
    """A model with all that it descends from and all that descends from it."""
    return reply(await service.read(who, lambda: service.coordinator.tree(model, who.viewer)))


@router.get("/models/{model}/graph", responses=gives(Document))
async def graph(model: Id, service: TheService, who: Reader) -> Response:
    """The graph of a model."""
    coordinator = service.coordinator
    text = await service.read(who, lambda: coordinator.graph_bytes(coordinator.show(model, who.viewer)))
    return Response(text, media_type="application/json")


@router.get("/models/{model}/program", responses=gives(bytes | None))
async def program(model: Id, service: TheService, who: Reader) -> Response:
    """The program of a model in base64, or null: what it computes, as plain data."""
    coordinator = service.coordinator
    return reply(await service.read(who, lambda: coordinator.program(coordinator.show(model, who.viewer))))


@router.get("/models/{model}/evidence", responses=gives(bytes | None))
async def evidence(model: Id, service: TheService, who: Colleague) -> Response:
    """The evidence of a model in base64, or null: held-out examples to check it on."""
    coordinator = service.coordinator
    return reply(await service.read(who, lambda: coordinator.evidence(coordinator.show(model, who.viewer))))


@router.get("/models/{model}/signature", responses=gives(bytes | None))
async def signature(model: Id, service: TheService, who: Reader) -> Response:
    """What somebody signed of a model, an envelope in base64, or null."""
    coordinator = service.coordinator
    return reply(await service.read(who, lambda: coordinator.signature(coordinator.show(model, who.viewer))))


@router.get("/models/{model}/" + WEIGHTS, responses=STREAMED, response_class=StreamingResponse)
async def weights(model: Id, request: Request, service: TheService, who: Reader) -> Response:
    """The weights of a model as they were registered. The ETag is their SHA-256."""
    record = await service.read(who, lambda: service.coordinator.show(model, who.viewer))
    etag = f'"{record.checksum}"'
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers={"etag": etag})
    start = wanted_range(request, record.bytes, etag)
    chunks = await service.read(who, lambda: service.coordinator.weights_bytes(record, start or 0))
    service.metrics.bytes.labels("out").inc(record.bytes - (start or 0))
    return stream_reply(service.storing, chunks, record.bytes, start, etag)


@router.get("/models/{model}/url", responses=gives(Signed))
async def url(model: Id, service: TheService, who: Reader) -> Response:
    """Where the weights of a model can be had from the store itself, for some minutes; "": only here."""
    found = await service.read(who, lambda: service.weights_url(service.coordinator.show(model, who.viewer)))
    return reply(Signed(url=found))


@router.delete("/models/{model}", responses=gives(Record))
async def remove(model: Id, service: TheService, who: Writer) -> Response:
    """Take a model out of the zoo. Its record stays, for those who descend from it."""

    def removed() -> Record:
        record = service.owned(model, who)
        return service.coordinator.remove(record.id, user=who.user.name, viewer=who.viewer)

    return reply(await service.read(who, removed))


@router.get("/models/{model}/credit", responses=gives(Credit))
async def credit(model: Id, service: TheService, who: Colleague) -> Response:
    """How far what is claimed of a model is believed: how many checked it, or started from it."""
    coordinator = service.coordinator
    return reply(await service.read(who, lambda: coordinator.credit(coordinator.show(model, who.viewer))))


@router.post("/models/{model}/outcomes", openapi_extra=takes(Told), responses=gives(Credit))
async def tell(model: Id, request: Request, service: TheService, who: Colleague) -> Response:
    """Say what came of a start from a model, or of checking it."""
    told = await read_json(request, Told)
    return reply(await service.read(who, lambda: service.tell(model, told, who)))


@router.put("/models/{model}/pin", responses=gives(Record))
async def pin(model: Id, service: TheService, who: Writer) -> Response:
    """Keep a model whatever it is worth."""
    return reply(await service.read(who, lambda: service.pin(model, True, who)))


@router.delete("/models/{model}/pin", responses=gives(Record))
async def unpin(model: Id, service: TheService, who: Writer) -> Response:
    """Let retention decide about a model again."""
    return reply(await service.read(who, lambda: service.pin(model, False, who)))


@router.put("/models/{model}/publish", responses=gives(Record))
async def publish(model: Id, service: TheService, who: Writer) -> Response:
    """Let partners of other organisations see a model; it must have a licence."""
    return reply(await service.read(who, lambda: service.publish(model, True, who)))


@router.delete("/models/{model}/publish", responses=gives(Record))
async def unpublish(model: Id, service: TheService, who: Writer) -> Response:
    """Let partners see a model no longer."""
    return reply(await service.read(who, lambda: service.publish(model, False, who)))
