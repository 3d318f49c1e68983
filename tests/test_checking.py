"""Claims are compared with what models do, in a process of their own, and what comes out counts."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

from modelkeeper import ModelKeeperClient
from modelkeeper.cli import main
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import CorruptWeights, InvalidMeta, NoProgram
from modelkeeper.server.serve import serving
from modelkeeper.settings import ServiceSettings, Settings
from modelkeeper.signing.keys import new_key, save_key
from modelkeeper.zoo.evidence import pack, unpack
from modelkeeper.zoo.files.blobs import EVIDENCE
from tests.helpers.zoos import net, register

META = {"data": "points", "task": "classification"}


def examples(number: int = 300) -> tuple[torch.Tensor, torch.Tensor]:
    points = torch.randn(number, 4, generator=torch.Generator().manual_seed(3))
    return points, points.argmax(dim=1)


def able() -> nn.Sequential:
    """A model that does it all right: the largest of four numbers."""
    first, last = nn.Linear(4, 8), nn.Linear(8, 4)
    with torch.no_grad():
        first.weight.copy_(torch.cat([torch.eye(4), -torch.eye(4)]))
        last.weight.copy_(torch.cat([torch.eye(4), -torch.eye(4)], dim=1))
        first.bias.zero_()
        last.bias.zero_()
    return nn.Sequential(first, nn.ReLU(), last)


def garbage() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))


@pytest.mark.parametrize(("model", "code"), [(able(), 0), (garbage(), 1)])
def test_the_command_fails_where_a_claim_does_not_hold(tmp_path: Path, model: nn.Module, code: int) -> None:
    home, held_out = str(tmp_path / "zoo"), str(tmp_path / "held_out.safetensors")
    with ModelKeeperClient(home, on_error="raise") as client:
        client.register_model(model, META | {"accuracy": 1.0, "name": "claims"})
    save_file(dict(zip(("inputs", "labels"), examples(), strict=True)), held_out)
    ran = CliRunner().invoke(main, ["check", "claims", "--examples", held_out, "--zoo", home, "--json"])
    assert ran.exit_code == code, ran.output
    assert json.loads(ran.stdout)["holds"] is (code == 0)


def test_garbage_fails_its_check_and_sinks(tmp_path: Path) -> None:
    local = LocalCoordinator(Settings(home=str(tmp_path / "zoo")))
    with serving(local, ServiceSettings(port=0)) as url:
        clients = {}
        for user in ("ann", "bob", "eve"):
            local.accounts.add_user(user)
            token = local.accounts.add_token(user, "write")
            clients[user] = ModelKeeperClient(url, token=token, on_error="raise", spool=str(tmp_path / "s"))
        ann, bob, eve = clients.values()
        honest = ann.register_model(able(), META | {"accuracy": 0.98, "name": "honest"})
        lie = eve.register_model(garbage(), META | {"accuracy": 1.0, "name": "lie"})
        assert honest is not None
        assert lie is not None
        child = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
        first = bob.query_for_model(child, META, trained="replace")[1]
        assert (first.parent, first.parents[0].claim) == (lie.id, "claim not checked")
        failed = bob.check(lie.id, *examples())
        assert not failed.holds
        assert failed.accuracy < 0.8
        assert failed.credit.failed == 1
        assert "eve claims accuracy 1;" in str(failed)
        held = bob.check("honest", *examples())
        assert (held.holds, held.accuracy) == (True, 1.0)
        second = ann.query_for_model(child, META, trained="replace")[1]
        assert second.parent == honest.id
        assert second.parents[0].claim == "claim checked by 1, failed for 0"
        assert np.mean(child(examples()[0]).argmax(1).numpy() == examples()[1].numpy()) == 1
        for client in clients.values():
            client.stop()
    local.close()


def test_what_cannot_be_checked_is_said(tmp_path: Path) -> None:
    with ModelKeeperClient(tmp_path / "zoo", on_error="raise", sandbox="off") as client:
        client.register_model(able(), META | {"metrics": {"val_loss": 0.3}, "name": "loss"})
        client.register_model(able(), META | {"accuracy": 0.9, "name": "able"})
        points, labels = examples()
        assert client.check("able", points.numpy(), labels.numpy()).holds  # in this process
        with pytest.raises(InvalidMeta, match="only a claimed accuracy"):
            client.check("loss", points, labels)
        with pytest.raises(InvalidMeta, match="at least 20"):
            client.check("able", points[:5], labels[:5])
        with pytest.raises(InvalidMeta, match="one whole number for each example"):
            client.check("able", points, labels[:-1])
        with pytest.raises(InvalidMeta, match="the model takes 1"):
            client.check("able", [points, points], labels)
        register(client.coordinator, net(), "bare", 0.9)  # type: ignore[arg-type]
        with pytest.raises(NoProgram):
            client.check("bare", points, labels)


@pytest.mark.parametrize("where", ["folder", "service"])
def test_evidence_lies_beside_a_model_and_anyone_may_check_it(tmp_path: Path, where: str) -> None:
    local = LocalCoordinator(Settings(home=str(tmp_path / "zoo")))
    with serving(local, ServiceSettings(port=0, auth=False)) as url:
        key = tmp_path / "key.pem"
        save_key(new_key(), key)
        uri = str(tmp_path / "zoo") if where == "folder" else url
        settings = {"on_error": "raise", "key": str(key), "spool": str(tmp_path / "spool")}
        with ModelKeeperClient(uri, user="ann", **settings) as ann, ModelKeeperClient(uri, user="bob") as bob:
            evidence = examples()
            record = ann.register_model(able(), META | {"accuracy": 0.98}, evidence=evidence)
            assert record is not None
            assert record.signer, "a signature covers it, too"
            data = local.zoo.evidence(record)
            assert data is not None
            assert hashlib.sha256(data).hexdigest() == record.evidence
            found = bob.check(record.id)
            assert (found.holds, found.examples, found.credit.evidence) == (True, 300, True)
            without = ann.register_model(garbage(), META | {"accuracy": 0.97, "name": "without"})
            assert without is not None
            assert without.evidence == ""
            with pytest.raises(InvalidMeta, match="registered without"):
                bob.check(without.id)
    local.close()


def test_evidence_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    points, labels = examples()
    with ModelKeeperClient(tmp_path / "zoo", on_error="raise") as client:
        for wrong, problem in (
            ((points, labels[:-1]), "as many examples"),
            ((points, points), "one whole number"),
            ((np.zeros((2**21, 4), "float32"), np.zeros(2**21, "int64")), "fewer examples"),
            ((np.array(["a"] * 300), labels), "numbers"),
        ):
            with pytest.raises(InvalidMeta, match=problem):
                client.register_model(able(), META | {"accuracy": 0.98}, evidence=wrong)
        assert client.coordinator.count() == 0


@given(st.binary(max_size=200))
def test_bytes_that_are_no_evidence_are_one_clear_error(data: bytes) -> None:
    with pytest.raises(InvalidMeta):
        unpack(data)


def test_changed_evidence_is_noticed(tmp_path: Path) -> None:
    with ModelKeeperClient(tmp_path / "zoo", on_error="raise") as client:
        record = client.register_model(able(), META | {"accuracy": 0.98}, evidence=examples())
        assert record is not None
        (tmp_path / "zoo" / record.folder / EVIDENCE).write_bytes(pack(*examples(40)))
        with pytest.raises(CorruptWeights, match="evidence is not what was registered"):
            client.check(record.id)
