"""Can what a coordinator says lead a client astray? Ids, sizes and checksums that cannot be meant."""

from typing import Any

import msgspec
import pytest

from modelkeeper.coordinator.lineage import Lineage
from modelkeeper.coordinator.remote.replies import wrong_with
from modelkeeper.coordinator.wire import UploadState
from modelkeeper.warmstart.answer import Answer, Parent, Rival
from modelkeeper.zoo.records import Event, Record

ID = "0123456789abcdef"
RECORD = Record(
    id=ID, name="x", owner="ada", framework="torch", parameters=1, bytes=1, fingerprint="", graph="",
    checksum="0" * 64, created=0.0, last_used=0.0,
)  # fmt: skip


def changed(**fields: Any) -> Record:
    return msgspec.structs.replace(RECORD, **fields)


@pytest.mark.parametrize(
    "reply",
    [
        RECORD,
        [RECORD, RECORD],
        changed(parent=ID, more_parents=(ID,), twin=ID),
        Lineage(RECORD, (RECORD,), (Lineage(RECORD, (), ()),)),
        Answer(),
        Answer(parent=ID),
        Event(at=0.0, action="swept"),
        UploadState(id=ID, offset=0, size=1),
        {"checksum": "anything"},
        17,
    ],
)
def test_what_can_be_meant(reply: object) -> None:
    assert wrong_with(reply) == ""


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "x", ID + "\n", ID.upper(), f"{ID}/..", "０" * 16])
@pytest.mark.parametrize(
    "where", ["record", "parent", "twin", "more", "answer", "parents", "rival", "upload"]
)
def test_no_id_that_is_none(name: str, where: str) -> None:
    if not name and where in ("parent", "twin"):
        pytest.skip("there is none, which can be")
    replies: dict[str, Any] = {
        "record": lambda: [changed(id=name)],
        "parent": lambda: Lineage(RECORD, (changed(parent=name),), ()),
        "twin": lambda: Lineage(RECORD, (), (Lineage(changed(twin=name), (), ()),)),
        "more": lambda: changed(parent=ID, more_parents=(name,)),
        "answer": lambda: Answer(parent=name),
        "parents": lambda: Answer(parent=ID, parents=(Parent(id=ID), Parent(id=name))),
        "rival": lambda: Answer(runners_up=(Rival(id=name, name="", similarity=0.5),)),
        "upload": lambda: UploadState(id=name, offset=0, size=1),
    }
    assert wrong_with(replies[where]())


@pytest.mark.parametrize(
    "reply",
    [
        changed(bytes=-1),
        changed(checksum="x"),
        UploadState(id=ID, offset=-1, size=1),
        UploadState(id=ID, offset=2, size=1),
        Answer(parent=ID, parents=tuple(Parent(id=ID) for _ in range(100))),
    ],
)
def test_no_size_that_is_none(reply: object) -> None:
    assert wrong_with(reply)
