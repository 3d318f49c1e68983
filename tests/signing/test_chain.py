"""A chain of entries: whatever is changed, left out, put in or moved is noticed."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.errors import InvalidMeta
from modelkeeper.signing.chain import BEFORE, Entry, Head, broken, following


def chain(length: int) -> list[Entry]:
    entries, head = [], BEFORE
    for place in range(length):
        entries.append(following(head, 1.5 * place, "lent", f"{place:016x}", {"user": f"u{place}"}))
        head = entries[-1].head
    return entries


def first_break(entries: list[Entry]) -> int | None:
    head = BEFORE
    for place, entry in enumerate(entries):
        if broken(entry, head):
            return place
        head = entry.head
    return None


ENTRIES = chain(6)


def test_the_digests_are_what_they_always_were() -> None:
    assert first_break(ENTRIES) is None
    assert ENTRIES[0].body == '{"at":"0.0","kind":"lent","model":"0000000000000000","number":0,"user":"u0"}'
    assert ENTRIES[0].digest == "ac62888fd5ac026255cdb1248569524b2d024ae03901b4a968235ebbd7b7fb19"


@given(st.data())
def test_whatever_is_changed_is_noticed(data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(ENTRIES) - 1))
    field = data.draw(st.sampled_from(Entry.__struct_fields__))
    old = getattr(ENTRIES[place], field)
    if isinstance(old, str):
        at = data.draw(st.integers(0, len(old) - 1))
        letter = data.draw(st.characters(codec="ascii", exclude_characters=old[at]))
        new: object = old[:at] + letter + old[at + 1 :]
    else:
        new = old + data.draw(st.sampled_from([-1, 1, 7]))
    changed = [*ENTRIES]
    changed[place] = msgspec.structs.replace(ENTRIES[place], **{field: new})
    assert first_break(changed) == place or (field == "digest" and first_break(changed) == place + 1)


def test_what_is_left_out_put_in_or_moved_is_noticed() -> None:
    assert first_break(ENTRIES[:2] + ENTRIES[3:]) == 2
    assert first_break(ENTRIES[1:]) == 0
    assert first_break([*ENTRIES[:2], ENTRIES[3], ENTRIES[2], *ENTRIES[4:]]) == 2
    forged = following(ENTRIES[1].head, 3.0, "lent", "f" * 16, {"user": "eve"})
    assert first_break([*ENTRIES[:2], forged, *ENTRIES[3:]]) == 3
    assert first_break([*ENTRIES[:2], forged, *ENTRIES[2:]]) == 3


def test_heads_are_read_as_they_are_printed() -> None:
    head = ENTRIES[3].head
    assert Head.read(f" {head}\n") == head
    for text in ("", "3", "x:" + "0" * 64, "-1:" + "0" * 64, "3:" + "G" * 64, "03:" + "0" * 64):
        with pytest.raises(InvalidMeta, match="NUMBER:DIGEST"):
            Head.read(text)
