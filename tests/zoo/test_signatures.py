"""Models that are signed when they are registered: here, and by whoever sends them."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import InvalidKey, InvalidSignature
from modelkeeper.settings import Settings
from modelkeeper.signing import load_key, new_key, save_key
from modelkeeper.zoo.files.blobs import SIGNATURE
from modelkeeper.zoo.records import Record
from modelkeeper.zoo.signatures import Sign, manifest_of, signed_by, signer_of, signing_with
from tests.helpers.zoos import net, register, told, weights

KEY = new_key()
SIGN = signing_with(KEY, owner="ada", organisation="Partner")


@pytest.fixture
def zoo(tmp_path: Path) -> Iterator[LocalCoordinator]:
    coordinator = LocalCoordinator(Settings(home=str(tmp_path / "zoo")))
    yield coordinator
    coordinator.close()


def signed(coordinator: LocalCoordinator, sign: Sign = SIGN, **more: object) -> Record:
    graph = net()
    said = told("net", 0.9, tags=["a"], licence="MIT", **more)
    return coordinator.register(graph, said, weights(graph).items(), program=b"{}", sign=sign).record


def test_a_model_that_is_signed_names_the_key_and_keeps_the_envelope(zoo: LocalCoordinator) -> None:
    parent = register(zoo, net(), "parent", 0.8)
    record = signed(zoo, parent=[parent.id])
    assert record.signer == KEY.public.id
    assert zoo.show(record.id).signer == KEY.public.id
    envelope = zoo.signature(record)
    assert envelope is not None
    manifest = signed_by(envelope, zoo.show(record.id)).manifest
    assert (manifest.owner, manifest.organisation, manifest.licence) == ("ada", "Partner", "MIT")
    assert [(one.id, one.weights) for one in manifest.parents] == [(parent.id, parent.checksum)]
    assert manifest.program != ""
    assert json.loads(envelope)["signatures"][0]["keyid"] == record.signer


def test_a_model_that_nobody_signed_has_no_signer(zoo: LocalCoordinator) -> None:
    record = register(zoo, net())
    assert (record.signer, zoo.signature(record)) == ("", None)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"metrics": {"accuracy": 1.0}},
        {"value": 1.0},
        {"checksum": "00" * 32},
        {"program": ""},
        {"id": "0" * 16},
        {"tags": ()},
        {"licence": "Apache-2.0"},
        {"parent": "1" * 16},
        {"finished": False},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_was_signed_of_another_model_is_refused_and_leaves_nothing(
    zoo: LocalCoordinator, tmp_path: Path, change: dict[str, object]
) -> None:
    def sign(record: Record, parents: Mapping[str, str]) -> bytes:
        return SIGN(msgspec.structs.replace(record, **change), parents)

    with pytest.raises(InvalidSignature, match="something else"):
        signed(zoo, sign)
    assert zoo.count() == 0
    assert not [*(tmp_path / "zoo" / "models").iterdir(), *(tmp_path / "zoo" / "staging").iterdir()]


def test_weights_of_parents_that_are_not_those_here_are_noticed(zoo: LocalCoordinator) -> None:
    parent = register(zoo, net(), "parent", 0.8)

    def sign(record: Record, parents: Mapping[str, str]) -> bytes:
        assert parents == {parent.id: parent.checksum}
        return SIGN(record, {parent.id: "00" * 32})

    with pytest.raises(InvalidSignature, match="parents"):
        signed(zoo, sign, parent=[parent.id])


def test_an_envelope_that_comes_along_counts_and_the_model_may_come_twice(
    zoo: LocalCoordinator, tmp_path: Path
) -> None:
    record = signed(zoo)
    envelope = zoo.signature(record)
    assert envelope is not None
    elsewhere = LocalCoordinator(Settings(home=str(tmp_path / "elsewhere")))
    graph, said = net(), told("net", 0.9, tags=["a"], licence="MIT")
    for _ in range(2):
        again = elsewhere.register(
            graph, said, weights(graph).items(), model_id=record.id, program=b"{}", signature=envelope
        )
        assert again.record.signer == KEY.public.id
    elsewhere.close()


def test_a_later_change_of_the_record_is_noticed(zoo: LocalCoordinator) -> None:
    record = signed(zoo)
    envelope = zoo.signature(record)
    assert envelope is not None
    for change in ({"value": 0.99}, {"checksum": "11" * 32}, {"graph": "22" * 32}, {"data": "other"}):
        with pytest.raises(InvalidSignature):
            signed_by(envelope, msgspec.structs.replace(record, **change))
    moved = msgspec.structs.replace(record, hits=9, state="removed", project="x", owner="eve", pinned=True)
    assert signed_by(envelope, moved).signer == KEY.public.id
    assert manifest_of(moved) == manifest_of(record)


def test_the_file_lies_beside_the_weights(zoo: LocalCoordinator, tmp_path: Path) -> None:
    record = signed(zoo)
    assert (tmp_path / "zoo" / record.folder / SIGNATURE).read_bytes() == zoo.signature(record)
    card = (tmp_path / "zoo" / record.folder / "README.md").read_text()
    assert 'license: "MIT"' in card
    assert "Licence: MIT." in card


def test_the_setting_names_a_key(tmp_path: Path) -> None:
    assert signer_of(Settings(), "ada") is None
    save_key(KEY, tmp_path / "ada.pem")
    assert load_key(tmp_path / "ada.pem").public == KEY.public
    assert signer_of(Settings(key=str(tmp_path / "ada.pem")), "ada") is not None
    with pytest.raises(InvalidKey):
        signer_of(Settings(key=str(tmp_path / "eve.pem")), "ada")
