"""Keys that a user has pinned."""

from pathlib import Path

import pytest

from modelkeeper.errors import InvalidKey
from modelkeeper.signing import new_key
from modelkeeper.signing.trusted import Trusted


def test_keys_are_pinned_by_names_and_go_again(tmp_path: Path) -> None:
    trusted, ada, bob = Trusted(tmp_path / "keys" / "trusted"), new_key().public, new_key().public
    assert trusted.keys() == {}
    trusted.add(ada, "Ada")
    trusted.add(bob, "")
    trusted.add(ada, "Ada of Partner # really")
    assert trusted.keys() == {bob.id: (bob, ""), ada.id: (ada, "Ada of Partner   really")}
    assert trusted.name_of(ada.id) == "Ada of Partner   really"
    assert trusted.name_of(bob.id) == bob.id[:16]
    assert trusted.remove(ada.id)
    assert not trusted.remove(ada.id)
    assert trusted.name_of(ada.id) is None
    assert trusted.path.stat().st_mode & 0o777 == 0o600


def test_remarks_stay_and_damage_is_said(tmp_path: Path) -> None:
    trusted, ada = Trusted(tmp_path / "trusted"), new_key().public
    trusted.path.write_text("# partners\n\n")
    trusted.path.chmod(0o600)
    trusted.add(ada, "Ada")
    assert trusted.path.read_text() == f"# partners\n\n{ada.line('Ada')}\n"
    trusted.path.write_text("ed25519:zz\n")
    with pytest.raises(InvalidKey, match="no public key"):
        trusted.keys()


def test_a_file_that_others_may_write_to_is_not_trusted(tmp_path: Path) -> None:
    trusted = Trusted(tmp_path / "trusted")
    trusted.add(new_key().public, "Ada")
    trusted.path.chmod(0o620)
    with pytest.raises(InvalidKey, match="others may write"):
        trusted.keys()
