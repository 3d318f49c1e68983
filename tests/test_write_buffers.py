"""Bytes that come in pieces of any size arrive in the file, in order and hashed; a full disk is said."""

import hashlib
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.write_buffers import BackgroundWriter, Buffer


@given(st.lists(st.binary(max_size=40)), st.integers(0, 30))
def test_every_byte_arrives_in_order_and_is_hashed(pieces: list[bytes], most: int) -> None:
    file = io.BytesIO()
    with BackgroundWriter(file, most) as behind:
        for piece in pieces:
            behind.add(piece)
    assert file.getvalue() == b"".join(pieces)
    assert behind.digest.digest() == hashlib.sha256(b"".join(pieces)).digest()


@given(st.binary(max_size=50), st.integers(1, 20))
def test_a_batch_takes_what_fits_and_gives_back_the_rest(data: bytes, most: int) -> None:
    batch = Buffer(most)
    rest = batch.take(memoryview(data))
    assert bytes(batch.view()) + bytes(rest) == data
    assert batch.held == min(len(data), most)
    assert batch.full == (len(data) >= most)


def test_no_more_is_held_than_can_come_nor_more_than_a_batch() -> None:
    for most, room in ((3, 3), (8, 8), (1_000, 8), (0, 1)):
        batch = Buffer(most, size=8)
        batch.take(memoryview(bytes(2_000)))
        assert batch.held == room


class Full(io.BytesIO):
    """A file on a disk that takes five bytes at a time, and ten in all."""

    def write(self, data: object) -> int:
        assert isinstance(data, memoryview)
        if self.tell() >= 10:
            raise OSError(28, "No space left on device")
        return super().write(data[:5])


def test_a_write_that_takes_a_part_is_continued() -> None:
    file = Full()
    with BackgroundWriter(file, 10) as behind:
        behind.add(b"0123456789")
    assert file.getvalue() == b"0123456789"


def test_a_disk_that_is_full_is_said_by_the_next_piece_or_at_the_end() -> None:
    with pytest.raises(OSError, match="No space"), BackgroundWriter(Full(), 12) as behind:  # noqa: PT012
        behind.add(b"0123456789ab")
        behind.add(b"more" * 10)
    with pytest.raises(OSError, match="No space"), BackgroundWriter(Full(), 100) as behind:
        behind.add(b"0123456789ab")


def test_what_came_before_an_error_is_written_and_the_error_stays_the_same() -> None:
    file = io.BytesIO()
    with pytest.raises(ValueError, match="the line broke"), BackgroundWriter(file) as behind:  # noqa: PT012
        behind.add(b"so far")
        raise ValueError("the line broke")
    assert file.getvalue() == b"so far"
    with pytest.raises(ValueError, match="the line broke"), BackgroundWriter(Full(), 100) as behind:  # noqa: PT012
        behind.add(b"0123456789ab")
        raise ValueError("the line broke")
