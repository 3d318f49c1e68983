"""Frames and areas: what was put comes back, and what was not there is never read."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from modelkeeper.frontends.programs.program import DTYPES
from modelkeeper.frontends.programs.sandbox.frames import (
    MOST,
    Broken,
    Late,
    Mapped,
    Place,
    area,
    get,
    put,
    receive,
    room_for,
    send,
)
from modelkeeper.weights import Array

PLAIN = [np.dtype(name) for name in DTYPES if name != "bfloat16"]


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def soon() -> float:
    return time.monotonic() + 30


@given(
    st.lists(arrays.arrays(st.sampled_from(PLAIN), arrays.array_shapes(min_dims=0, min_side=0)), max_size=4)
)
def test_what_was_put_comes_back(given: list[Array]) -> None:
    """Law: numbers are the same on both sides, wherever they are put, and nobody writes over others."""
    file = area(room_for(given))
    try:
        places = put(file, given)
        seen = Mapped(file, shared=False)
        for array, place in zip(given, places, strict=True):
            for found in (get(file, place), seen.at(place)):
                assert (found.dtype, found.shape) == (array.dtype, array.shape)
                assert found.tobytes() == array.tobytes()
        both = Mapped(file, shared=True)
        again = [both.put(array) for array in given]
        assert again == places
        both.clear()
        assert not given or both.put(given[0]) == places[0]
    finally:
        os.close(file)


@given(
    st.builds(
        Place,
        start=st.integers(-(2**70), 2**70),
        dtype=st.sampled_from([*DTYPES, "object", "", "<f8"]),
        shape=st.lists(st.sampled_from([0, 1, 2, 3, 7, -1, 2**62, 2**70]), max_size=20).map(tuple),
    )
)
def test_a_place_is_read_or_refused(place: Place) -> None:
    """Law: whatever somebody says is there, there are numbers of just that shape, or an error."""
    file = area(4096)
    try:
        found = get(file, place)
    except Broken:
        pass
    else:
        assert found.shape == place.shape
        assert place.start + found.nbytes <= 4096 or not found.nbytes
    finally:
        os.close(file)


def test_there_is_no_more_room_than_there_is() -> None:
    file = area(256)
    mapped = Mapped(file, shared=True)
    mapped.put(np.zeros(16))
    with pytest.raises(ValueError, match="128 are left"):
        mapped.put(np.zeros(17))
    with pytest.raises(ValueError, match="object"):
        mapped.put(np.array([None]))
    os.close(file)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(), st.lists, max_leaves=20
    )
)
def test_a_message_arrives(message: Any) -> None:
    one, other = socket.socketpair()
    with one, other:
        send(one, message)
        assert receive(other, Any, soon()) == message


@given(st.binary(max_size=64))
def test_bytes_are_a_message_or_broken(data: bytes) -> None:
    one, other = socket.socketpair()
    with one, other:
        one.sendall(data)
        one.shutdown(socket.SHUT_WR)
        with pytest.raises(Broken):
            receive(other, Place, soon())


def test_a_message_that_is_too_long_is_neither_sent_nor_taken(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    with pytest.raises(Broken, match="bytes"):
        send(ends[0], "x" * MOST)
    ends[0].sendall((MOST + 1).to_bytes(4, "little"))
    with pytest.raises(Broken, match="bytes"):
        receive(ends[1], str, soon())


def test_nobody_waits_longer_than_said(ends: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(Late):
        receive(ends[1], str, time.monotonic() + 0.05)
    stop = threading.Event()

    def trickle() -> None:
        ends[0].sendall((1000).to_bytes(4, "little"))
        while not stop.wait(0.01):
            ends[0].sendall(b" ")

    thread = threading.Thread(target=trickle)
    thread.start()
    with pytest.raises(Late):
        receive(ends[1], str, time.monotonic() + 0.2)
    stop.set()
    thread.join()


def test_who_is_gone_is_broken(ends: tuple[socket.socket, socket.socket]) -> None:
    ends[0].close()
    with pytest.raises(Broken, match="closed"):
        receive(ends[1], str, soon())
    with pytest.raises(Broken):
        send(ends[1], "x" * 2**20)
