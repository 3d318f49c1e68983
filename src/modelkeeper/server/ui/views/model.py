"""One model: what is known of it, its layers, its family, what happened to it, what may be done with it."""

from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from modelkeeper.coordinator.lineage import Lineage
from modelkeeper.errors import ModelKeeperError, NotAllowed
from modelkeeper.policy.credit import Credit
from modelkeeper.server.bodies import reply, stream_reply
from modelkeeper.server.dependencies import Id, TheService
from modelkeeper.server.service import Service
from modelkeeper.server.ui.forms import onward, read_form
from modelkeeper.server.ui.layers import layer_rows
from modelkeeper.server.ui.past import Past, past_of
from modelkeeper.server.ui.pedigree import pedigree
from modelkeeper.server.ui.rendering import page
from modelkeeper.server.ui.views.access import Colleague, Editor, Visitor
from modelkeeper.zoo.accounts.holders import PARTNER, WRITE, Holder
from modelkeeper.zoo.history.savings import matched
from modelkeeper.zoo.history.twins import TWIN
from modelkeeper.zoo.records import STORED, Event, Record

router = APIRouter()
EVENTS = 20


@router.get("/ui/models/{model}")
async def show(model: Id, request: Request, service: TheService, who: Visitor) -> Response:
    """The page of a model."""
    coordinator = service.coordinator

    def find() -> tuple[Lineage, list[Event], Credit | None, Past | None]:
        record = coordinator.show(model, who.viewer)
        events = coordinator.log(limit=EVENTS, model=record.id, viewer=who.viewer)
        credit, past = None, None
        if who.scope != PARTNER:
            credit = coordinator.credit(record)
            past = past_of(coordinator, record, who.viewer, request.query_params)
        return coordinator.tree(record.id, who.viewer), events, credit, past

    tree, events, credit, past = await service.read(who, find)
    kin, left_out = pedigree(tree)
    record = tree.record
    own = record.owner_id == who.user.id
    return page(
        request,
        "model.html",
        record=record,
        kin=kin,
        left_out=left_out,
        lanes=max(relative.row.width for relative in kin),
        events=events,
        claim=str(credit) if credit is not None else "",
        past=past,
        stored=record.state in STORED,
        may_change=record.state in STORED and who.may(WRITE) and (own or who.viewer.all),
        snippet=_snippet(request, service, record),
    )


def _snippet(request: Request, service: Service, record: Record) -> str:
    """The lines that start a training from a model."""
    where = f"{request.url.scheme}://{request.headers.get('host', '')}"
    if not service.settings.auth and not service.coordinator.settings.in_memory:
        where = str(service.coordinator.settings.folder.absolute())
    meta: dict[str, Any] = {"data": record.data, "task": record.task, "parents": [record.id]}
    asked = {name: value for name, value in meta.items() if value}
    lines = "".join(f"    {name!r}: {value!r},\n" for name, value in asked.items())
    return (
        "from modelkeeper import ModelKeeperClient\n\n"
        f"client = ModelKeeperClient({where!r})\n"
        f"meta = {{\n{lines}}}\n"
        "model, meta = client.query_for_model(model, meta)\n"
        "print(meta)  # what was lent, and how to train from here"
    )


@router.get("/ui/models/{model}/layers.json")
async def layers(model: Id, service: TheService, who: Visitor) -> Response:
    """The layers of a model, for its page."""
    coordinator = service.coordinator
    found = await service.read(
        who, lambda: layer_rows(coordinator.graph(coordinator.show(model, who.viewer)))
    )
    return reply(found)


@router.get("/ui/models/{model}/curves.json")
async def curves(model: Id, service: TheService, who: Colleague) -> Response:
    """How the training of a model went, what it is drawn beside, and by how much it was earlier than that."""
    coordinator, viewer = service.coordinator, who.viewer

    def find() -> dict[str, Any]:
        found = coordinator.curves(coordinator.show(model, viewer), viewer=viewer)
        earlier = None
        if found.curve is not None and found.beside is not None and found.kind == TWIN:
            earlier = matched(found.curve, [found.beside])
        return {**msgspec.to_builtins(found), "earlier": earlier}

    return reply(await service.read(who, find))


@router.get("/ui/models/{model}/model.safetensors")
async def download(model: Id, service: TheService, who: Visitor) -> Response:
    """The weights of a model, as a file."""
    record = await service.read(who, lambda: service.coordinator.show(model, who.viewer))
    chunks = await service.read(who, lambda: service.coordinator.weights_bytes(record))
    service.metrics.bytes.labels("out").inc(record.bytes)
    sent = stream_reply(service.storing, chunks, record.bytes, None, f'"{record.checksum}"')
    sent.headers["content-disposition"] = f'attachment; filename="{record.id}.safetensors"'
    return sent


@router.post("/ui/models/{model}/{action}")
async def change(model: Id, action: str, request: Request, service: TheService, who: Editor) -> Response:
    """Pin a model, or no longer, or remove it."""
    form = await read_form(request)
    if action == "remove" and form.get("sure") != model:
        raise NotAllowed("nobody has said that they are sure", "Tick the box on the page of the model.")
    await service.read(who, lambda: _change(service, model, action, who))
    return onward(f"/ui/models/{model}")


def _change(service: Service, model: str, action: str, who: Holder) -> None:
    if action in ("pin", "unpin"):
        service.pin(model, action == "pin", who)
    elif action == "remove":
        record = service.owned(model, who)
        service.coordinator.remove(record.id, user=who.user.name, viewer=who.viewer)
    else:
        raise ModelKeeperError(f"a page can pin, unpin and remove a model, not {action[:40]!r}")
