"""Parents that are signed, here and behind HTTP: what is not what was signed lends nothing."""

from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa

from modelkeeper.coordinator import Coordinator
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.coordinator.verifying import checked_query
from modelkeeper.errors import InvalidKey, InvalidSignature
from modelkeeper.faults import KeeperWarning
from modelkeeper.meta import Query
from modelkeeper.settings import Settings
from modelkeeper.signing import new_key
from modelkeeper.signing.trusted import Trusted
from modelkeeper.zoo.database.rows import reseal
from modelkeeper.zoo.database.schema import models
from modelkeeper.zoo.files.blobs import SIGNATURE
from modelkeeper.zoo.records import Record
from modelkeeper.zoo.signatures import signed_as_seen, signing_with
from tests.helpers.zoos import DATA, TASK, net, told, weights

KEY, OTHER = new_key(), new_key()
ASKED = Query(data=DATA, task=TASK)
SIGNED = Query(data=DATA, task=TASK, signed=True)


def keep(coordinator: Coordinator, name: str, accuracy: float, signed: bool = True) -> Record:
    graph = net()
    sign = signing_with(KEY, owner="ada") if signed else None
    tensors = weights(graph, int(accuracy * 100)).items()
    return coordinator.register(graph, told(name, accuracy), tensors, owner="ann", sign=sign).record


def tamper(home: Path, record: Record, **values: object) -> None:
    """Do to the catalog what somebody who runs a zoo could do."""
    local = LocalCoordinator(Settings(home=str(home)))
    with local.zoo.catalog.database.writing() as connection:
        connection.execute(sa.update(models).where(models.c.id == record.id).values(**values))
        reseal(connection, models.c.id == record.id)
    local.close()


def test_a_signed_parent_lends_and_the_answer_says_who_signed(
    coordinator: Coordinator, tmp_path: Path
) -> None:
    record = keep(coordinator, "net", 0.9)
    assert record.signer == KEY.public.id
    assert coordinator.show(record.id).signer == KEY.public.id
    envelope = coordinator.signature(record)
    assert envelope is not None
    assert signed_as_seen(envelope, record).manifest.owner == "ada"
    trusted = Trusted(tmp_path / "trusted")
    trusted.add(KEY.public, "Ada")
    assert checked_query(coordinator, net(), SIGNED, trusted=trusted).answer.cold, "the zoo trusts no key yet"
    coordinator.trust_key(KEY.public.line("Ada"))
    for query in (ASKED, SIGNED):
        loan = checked_query(coordinator, net(), query, trusted=trusted)
        assert [parent.signer for parent in loan.answer.parents] == [KEY.public.id]
        lent = dict(loan.weights())
        expected = weights(net(), 90)
        assert lent
        assert all(np.array_equal(array, expected[name]) for name, array in lent.items())


def test_a_record_that_was_changed_later_lends_nothing_and_the_next_parent_does(
    coordinator: Coordinator, tmp_path: Path
) -> None:
    good, best = keep(coordinator, "good", 0.89), keep(coordinator, "best", 0.9)
    trusted = Trusted(tmp_path / "trusted")
    assert checked_query(coordinator, net(), ASKED, trusted=trusted).answer.parent == best.id
    tamper(tmp_path / "zoo", best, value=0.91)
    with pytest.warns(KeeperWarning, match="best was left out.*something else: value"):
        loan = checked_query(coordinator, net(), ASKED, trusted=trusted)
    assert loan.answer.parent == good.id


def test_a_signature_that_is_gone_or_claimed_for_another_key_is_noticed(
    coordinator: Coordinator, tmp_path: Path
) -> None:
    record, trusted = keep(coordinator, "net", 0.9), Trusted(tmp_path / "trusted")
    tamper(tmp_path / "zoo", record, signer=OTHER.public.id)
    with pytest.warns(KeeperWarning, match="another key"):
        assert checked_query(coordinator, net(), ASKED, trusted=trusted).answer.cold
    tamper(tmp_path / "zoo", record, signer=KEY.public.id)
    (tmp_path / "zoo" / record.folder / SIGNATURE).unlink()
    with pytest.warns(KeeperWarning, match="signature is missing"):
        assert checked_query(coordinator, net(), ASKED, trusted=trusted).answer.cold


def test_where_signatures_are_asked_for_only_pinned_keys_count(
    coordinator: Coordinator, tmp_path: Path
) -> None:
    record, trusted = keep(coordinator, "net", 0.9), Trusted(tmp_path / "trusted")
    coordinator.trust_key(KEY.public.line("Ada"))
    assert checked_query(coordinator, net(), SIGNED, trusted=trusted).answer.parent == record.id
    trusted.add(OTHER.public, "somebody else")
    assert checked_query(coordinator, net(), ASKED, trusted=trusted).answer.parent == record.id
    with pytest.warns(KeeperWarning, match="not pinned"):
        assert checked_query(coordinator, net(), SIGNED, trusted=trusted).answer.cold
    unsigned = keep(coordinator, "unsigned", 0.95, signed=False)
    assert checked_query(coordinator, net(), ASKED, trusted=trusted).answer.parent == unsigned.id


def test_a_signature_of_something_else_is_refused_wherever_the_zoo_is(coordinator: Coordinator) -> None:
    def sign(record: Record, parents: object) -> bytes:
        return signing_with(KEY)(record, {}).replace(b'"sig":"', b'"sig":"A', 1)

    graph = net()
    with pytest.raises(InvalidSignature, match="no signature"):
        coordinator.register(graph, told(), weights(graph).items(), owner="ann", sign=sign)
    assert coordinator.count() == 0


def test_keys_and_audits_are_the_same_wherever_the_zoo_is(coordinator: Coordinator) -> None:
    before = coordinator.audit()
    known = coordinator.trust_key(KEY.public.line("Ada"), user="root")
    assert (known.id, known.name) == (KEY.public.id, "Ada")
    assert [key.id for key in coordinator.trusted_keys()] == [KEY.public.id]
    assert coordinator.revoke_key(known.id[:8]).revoked is not None
    with pytest.raises(InvalidKey):
        coordinator.revoke_key("../models")
    with pytest.raises(InvalidKey):
        coordinator.trust_key("nonsense")
    after = coordinator.audit(before.head)
    assert after.whole
    assert after.entries == before.entries + 2
    number = before.head.partition(":")[0]
    assert not coordinator.audit(f"{number}:{'0' * 64}").whole
