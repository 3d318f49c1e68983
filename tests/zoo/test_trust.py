"""Keys that a zoo trusts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from modelkeeper.errors import InvalidKey, InvalidMeta
from modelkeeper.signing import new_key
from modelkeeper.zoo.care.audit import audit
from modelkeeper.zoo.catalog.catalog import Catalog
from modelkeeper.zoo.trust import Trust

ADA, BOB = new_key().public, new_key().public


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    made = Catalog(tmp_path / "catalog.db")
    yield made
    made.close()


def test_keys_are_trusted_revoked_and_trusted_again(catalog: Catalog) -> None:
    trust = Trust(catalog)
    trust.add(ADA, "Ada")
    trust.add(BOB, "Bob")
    trust.add(ADA, "Ada of Partner")
    assert {(key.id, key.name, key.revoked) for key in trust.listed()} == {
        (ADA.id, "Ada of Partner", None),
        (BOB.id, "Bob", None),
    }
    assert trust.revoke(ADA.id[:8]).id == ADA.id
    assert [key.id for key in trust.listed() if key.revoked is None] == [BOB.id]
    with pytest.raises(InvalidKey, match="no trusted key"):
        trust.revoke(ADA.id)
    trust.add(ADA, "Ada")
    assert all(key.revoked is None for key in trust.listed())
    found = audit(catalog)
    assert found.whole
    assert found.entries == 6


def test_ids_that_are_too_short_and_names_that_cannot_be_are_refused(catalog: Catalog) -> None:
    trust = Trust(catalog)
    trust.add(ADA, "Ada")
    for key in ("", ADA.id[:3], "%", "_" * 64):
        with pytest.raises(InvalidKey):
            trust.revoke(key)
    for name in ("", "a\nb", "\x1b[31m"):
        with pytest.raises(InvalidMeta):
            trust.add(BOB, name)
    assert [key.id for key in trust.listed()] == [ADA.id]
