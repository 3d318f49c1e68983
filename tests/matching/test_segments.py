"""Files of segments: damaged ones are refused or harmless, small ones are put together."""

import contextlib
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkeeper.errors import InvalidIndex
from modelkeeper.matching import Index, prepare
from tests.helpers import generated as net
from tests.helpers.scans import filled, full_scan


def test_files_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidIndex, match="cannot be used"):
        Index.load(tmp_path)
    index = filled({1: prepare(net.vgg()), 2: prepare(net.resnet())})
    index.save(tmp_path)
    (file,) = tmp_path.glob("*.segment")
    whole = file.read_bytes()
    for damaged in (b"", b"not a segment", whole[: len(whole) // 2], whole[:40] + b"\xff" * 8 + whole[48:]):
        file.write_bytes(damaged)
        with pytest.raises(InvalidIndex):
            Index.load(tmp_path)


@given(st.data())
@settings(max_examples=40)
def test_flipped_bytes_never_crash_a_search(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("index")
    filled({1: prepare(net.vgg()), 2: prepare(net.resnet()), 3: prepare(net.darts())}).save(folder)
    (file,) = folder.glob("*.segment")
    content = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    file.write_bytes(bytes(content))
    with contextlib.suppress(InvalidIndex, ValueError, IndexError, UnicodeDecodeError):
        Index.load(folder).search(prepare(net.resnet((1, 2))), buckets=10)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8))
@settings(max_examples=10)
def test_small_segments_are_put_together(tmp_path_factory: pytest.TempPathFactory, sizes: list[int]) -> None:
    folder, models = tmp_path_factory.mktemp("index"), [prepare(net.vgg((8, w))) for w in (4, 8, 16)]
    Index().save(folder)
    total = 0
    for size in sizes:
        index = Index.load(folder)
        for key in range(total, total + size):
            index.add(key, models[key % 3])
        total += size
        index.save(folder)
    parts = Index.load(folder).snapshot.parts
    assert sum(part.rows for part in parts) == total
    assert all(before.rows > 2 * after.rows for before, after in pairwise(parts))
    result = Index.load(folder).search(models[0], buckets=10)
    assert result.matches == full_scan({key: models[key % 3] for key in range(total)}, models[0], 10)
