"""Bundles: out of one zoo and into another, by way of strangers."""

import io
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from modelkeeper.cli import main
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.coordinator.remote import RemoteCoordinator
from modelkeeper.errors import InvalidBundle
from modelkeeper.server.serve import serving
from modelkeeper.settings import ServiceSettings, Settings
from modelkeeper.sharing import Export, Outcome, Rules, import_bundle
from modelkeeper.sharing.bundle import FIRST, read_document
from modelkeeper.sharing.tar import END, header, padding
from modelkeeper.signing import new_key
from modelkeeper.zoo.signatures import signing_with
from tests.helpers import zoos

GRAPH = zoos.net(4)
KEY = new_key()


@pytest.fixture
def zoo(tmp_path: Path) -> Iterator[LocalCoordinator]:
    local = LocalCoordinator(Settings(home=str(tmp_path / "zoo")))
    parent = zoos.register(local, GRAPH, "parent", owner="ann")
    more: dict[str, Any] = {"owner": "ann", "program": b"{}", "sign": signing_with(KEY, owner="ann")}
    told = zoos.told("child", parent=parent.id, licence="MIT", project="secret")
    local.register(zoos.net(6), told, zoos.weights(zoos.net(6)).items(), **more)
    zoos.register(local, GRAPH, "parent", owner="bob")  # the same weights
    yield local
    local.close()


def exported(zoo: Any, *names: str, **how: Any) -> bytes:
    out = io.BytesIO()
    Export(zoo, names, **how).write(out)
    return out.getvalue()


def brought(data: bytes, into: Any, rules: Rules = Rules(), **how: Any) -> list[Outcome]:  # noqa: B008
    return list(import_bundle(io.BytesIO(data), into, rules, **how))


@pytest.fixture
def other(tmp_path: Path) -> Iterator[LocalCoordinator]:
    local = LocalCoordinator(Settings(home=str(tmp_path / "other")))
    yield local
    local.close()


def test_models_come_out_as_they_went_in(zoo: LocalCoordinator, other: LocalCoordinator) -> None:
    data = exported(zoo, "child", ancestors=True, origin="Partner")
    assert data == exported(zoo, "child", ancestors=True, origin="Partner"), "the same models, the same bytes"
    names = [name for name, _ in pieces(data)]
    assert names[0] == FIRST
    assert [outcome.status for outcome in brought(data, other, owner="eve")] == ["imported"] * 2
    child, there = other.show("child"), zoo.show("child")
    assert (child.id, child.checksum, child.metrics) == (there.id, there.checksum, there.metrics)
    assert (child.origin, child.signer, child.licence) == ("Partner", KEY.public.id, "MIT")
    assert (child.project, child.owner, child.parent) == ("", "eve", there.parent)
    assert other.signature(child) == zoo.signature(there)
    assert other.program(child) == b"{}"
    assert b"secret" not in data
    for name, array in zoo.zoo.weights(there).items():
        np.testing.assert_array_equal(other.zoo.weights(child)[name], array)
    assert [outcome.status for outcome in brought(data, other)] == ["here"] * 2
    assert not list(other.upload_folder().glob("modelkeeper-*"))


def test_the_same_weights_stand_once(zoo: LocalCoordinator, other: LocalCoordinator) -> None:
    both = [record.id for record in zoo.models() if record.name == "parent"]
    data = exported(zoo, *both)
    names = [name for name, _ in pieces(data)]
    assert len([name for name in names if name.endswith("safetensors")]) == 1
    assert [outcome.status for outcome in brought(data, other)] == ["imported"] * 2
    assert {other.show(name).checksum for name in both} == {zoo.show(both[0]).checksum}


def test_rules_say_what_comes_in(zoo: LocalCoordinator, other: LocalCoordinator) -> None:
    data = exported(zoo, "child", ancestors=True)
    for rules, refused in (
        (Rules(signers=()), {"child", "parent"}),
        (Rules(signers=(KEY.public.id,)), {"parent"}),
        (Rules(licences=("MIT",)), {"parent"}),
        (Rules(most_bytes=10), {"child", "parent"}),
    ):
        outcomes = brought(data, other, rules, dry_run=True)
        assert {outcome.name for outcome in outcomes if outcome.status == "refused"} == refused
        assert all(outcome.reason for outcome in outcomes if outcome.status == "refused")
    assert other.count() == 0
    brought(data, other, Rules(signers=(KEY.public.id,), project="vision", visibility="project"))
    (came,) = other.models()
    assert (came.name, came.project, came.visibility) == ("child", "vision", "project")


def test_an_id_that_is_taken_is_told(zoo: LocalCoordinator, other: LocalCoordinator) -> None:
    child = zoo.show("child")
    zoos.register(other, GRAPH, "mine", model_id=child.id)
    data = exported(zoo, "child")
    (outcome,) = brought(data, other)
    assert (outcome.status, outcome.reason) == ("refused", "another model of this zoo has its id")
    other.remove(child.id)
    assert other.show(child.id).name == "mine"


def test_an_export_and_an_import_go_on_where_they_were_stopped(
    zoo: LocalCoordinator, other: LocalCoordinator, tmp_path: Path
) -> None:
    whole, path = exported(zoo, "child", ancestors=True), tmp_path / "bundle.mk"
    export = Export(zoo, ["child"], ancestors=True)
    for cut in (0, 100, len(whole) // 2, len(whole) - 700):
        path.with_name("bundle.mk.part").write_bytes(whole[:cut] + b"\1" * 7)
        export.save(path)
        assert path.read_bytes() == whole
    with pytest.raises(InvalidBundle, match="ends too soon"):
        brought(whole[: len(whole) - 3000], other)
    assert other.count() == 1, "what was whole is in"
    assert sorted(outcome.status for outcome in brought(whole, other)) == ["here", "imported"]


def pieces(data: bytes) -> list[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return [(info.name, archive.extractfile(info).read()) for info in archive]  # type: ignore[union-attr]


def joined(parts: list[tuple[str, bytes]]) -> bytes:
    return b"".join(header(name, len(data)) + data + padding(len(data)) for name, data in parts) + END


def in_document(change: Callable[[Any], Any]) -> Callable[[bytes], bytes]:
    def spoil(data: bytes) -> bytes:
        (name, document), *rest = pieces(data)
        plain = json.loads(document)
        change(plain)
        return joined([(name, json.dumps(plain).encode()), *rest])

    return spoil


def with_type(kind: bytes) -> Callable[[bytes], bytes]:
    def spoil(data: bytes) -> bytes:
        first, *rest = pieces(data)
        info = tarfile.TarInfo(rest[0][0])
        info.type, info.linkname = kind, "/etc/passwd"
        return joined([first])[: -len(END)] + info.tobuf(tarfile.GNU_FORMAT) + joined(rest)

    return spoil


def swapped(data: bytes) -> bytes:
    first, *rest = pieces(data)
    return joined([first, *reversed(rest)])


def with_nan(data: bytes) -> bytes:
    """Weights with NaN, and checksums that fit them."""
    import hashlib

    parts = pieces(data)
    plain = json.loads(parts[0][1])
    name, weights = parts[-1]
    weights = weights[:-4] + np.float32("nan").tobytes()
    digest = hashlib.sha256(weights).hexdigest()
    plain["models"][0]["record"]["checksum"] = digest
    plain["models"][0]["files"]["model.safetensors"]["sha256"] = digest
    return joined([(FIRST, json.dumps(plain).encode()), *parts[1:-1], (name, weights)])


SPOILED: dict[str, Callable[[bytes], bytes]] = {
    "no archive": lambda data: b"x" * 2000,
    "nothing": lambda data: b"",
    "an empty archive": lambda data: END,
    "another order": swapped,
    "a file twice": lambda data: joined([*pieces(data)[:2], *pieces(data)[1:]]),
    "a file more": lambda data: joined([*pieces(data), ("models/x", b"")]),
    "a file less": lambda data: joined(pieces(data)[:-1]),
    "a path upwards": lambda data: joined([pieces(data)[0], ("../../evil", b"x"), *pieces(data)[1:]]),
    "a link": with_type(tarfile.SYMTYPE),
    "a hard link": with_type(tarfile.LNKTYPE),
    "a device": with_type(tarfile.CHRTYPE),
    "a fifo": with_type(tarfile.FIFOTYPE),
    "a long name": with_type(tarfile.GNUTYPE_LONGNAME),
    "an extended header": with_type(tarfile.XHDTYPE),
    "other weights": lambda data: joined(
        [*pieces(data)[:-1], (pieces(data)[-1][0], pieces(data)[-1][1][::-1])]
    ),
    "an unknown version": in_document(lambda plain: plain.update(version=9)),
    "another format": in_document(lambda plain: plain.update(format="x")),
    "an id that is a path": in_document(
        lambda plain: plain["models"][0]["record"].update(id="../../../../x")
    ),
    "a file that is a path": in_document(
        lambda plain: plain["models"][0]["files"].update({"../x": {"sha256": "0" * 64, "size": 1}})
    ),
    "a negative size": in_document(lambda plain: plain["models"][0]["files"]["graph.json"].update(size=-5)),
    "a huge size": in_document(lambda plain: plain["models"][0]["files"]["graph.json"].update(size=2**60)),
    "a model twice": in_document(lambda plain: plain["models"].append(plain["models"][0])),
    "another size than the record's": in_document(lambda plain: plain["models"][0]["record"].update(bytes=3)),
    "nesting without end": lambda data: joined([(FIRST, b'{"models":' + b"[" * 50_000)]),
}


@pytest.mark.parametrize("wrong", SPOILED)
def test_a_bundle_that_is_not_what_it_says_is_refused(
    wrong: str, zoo: LocalCoordinator, other: LocalCoordinator, tmp_path: Path
) -> None:
    before = {path for path in tmp_path.rglob("*") if "other" not in path.parts}
    with pytest.raises(InvalidBundle):
        brought(SPOILED[wrong](exported(zoo, "parent")), other)
    assert other.count() == (wrong == "a file more"), "that comes behind a model that is whole"
    assert {path for path in tmp_path.rglob("*") if "other" not in path.parts} == before
    assert not list(other.upload_folder().glob("modelkeeper-*")), "nothing is left lying"


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (with_nan, "NaN"),
        (in_document(lambda plain: plain["models"][0]["record"].update(name="\x1b[31m")), "printable"),
        (in_document(lambda plain: plain["models"][0]["record"].update(signer="ab" * 32)), "not signed"),
    ],
)
def test_a_model_that_cannot_be_is_refused_by_itself(
    wrong: Callable[[bytes], bytes], problem: str, zoo: LocalCoordinator, other: LocalCoordinator
) -> None:
    (outcome,) = brought(wrong(exported(zoo, "parent")), other)
    assert outcome.status == "refused"
    assert problem in outcome.reason
    assert other.count() == 0


def test_what_was_signed_cannot_be_said_otherwise(zoo: LocalCoordinator, other: LocalCoordinator) -> None:
    better = in_document(
        lambda plain: plain["models"][0]["record"].update(value=0.99, metrics={"accuracy": 0.99})
    )
    (outcome,) = brought(better(exported(zoo, "child")), other)
    assert outcome.status == "refused"
    assert "signed was something else" in outcome.reason
    assert other.count() == 0


def test_bundles_go_over_http_both_ways(
    zoo: LocalCoordinator, other: LocalCoordinator, tmp_path: Path
) -> None:
    local = exported(zoo, "child", ancestors=True)
    for coordinator, act in ((zoo, "export"), (other, "import")):
        with serving(coordinator, ServiceSettings(port=0, auth=False)) as url:
            remote = RemoteCoordinator(url, spool=tmp_path / "spool", timeout=20)
            if act == "export":
                assert exported(remote, "child", ancestors=True) == local
            else:
                assert [outcome.status for outcome in brought(local, remote)] == ["imported"] * 2
                assert other.show("child").checksum == zoo.show("child").checksum
            remote.close()


WIDE = {"COLUMNS": "160"}  # so that no word of a table is divided


def test_the_commands(zoo: LocalCoordinator, tmp_path: Path) -> None:
    bundle, run = tmp_path / "bundle.mk", CliRunner()
    home, there = str(tmp_path / "zoo"), str(tmp_path / "there")
    done = run.invoke(main, ["export", "child", "-o", str(bundle), "--zoo", home])
    assert done.exit_code == 0, done.output
    for word in ("leaves: child", "data digits", "MIT", "signed", "parameters"):
        assert word in done.output
    streamed = run.invoke(main, ["export", "child", "--zoo", home])
    assert streamed.stdout_bytes == bundle.read_bytes()
    assert "leaves: child" in streamed.stderr
    key = KEY.public.line()
    dry = run.invoke(main, ["import", str(bundle), "--zoo", there, "--signed-by", key, "--dry-run", "--json"])
    assert [row["status"] for row in json.loads(dry.output)] == ["would import"]
    assert not Path(there).exists()  # looking makes no zoo
    stdin = bundle.read_bytes()
    done = run.invoke(main, ["import", "-", "--zoo", there, "--project", "vision"], input=stdin, env=WIDE)
    assert done.exit_code == 0, done.output
    assert "imported" in done.output
    refused = run.invoke(
        main, ["import", str(bundle), "--zoo", str(tmp_path / "x"), "--allow-licence", "BSD"]
    )
    assert refused.exit_code == 1
    assert run.invoke(main, ["import", str(bundle), "--zoo", there, "--data", "x"]).exit_code == 2
    assert run.invoke(main, ["import", str(bundle), str(tmp_path), "--zoo", there]).exit_code == 2


def test_a_document_says_what_is_wrong_with_it() -> None:
    with pytest.raises(InvalidBundle, match="Update modelkeeper"):
        read_document(b'{"format": "modelkeeper.bundle", "version": 2}')
