"""Every index of a zoo finds what a full scan finds, whoever registered and removed it, saved or not."""

import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.matching import Index, prepare
from modelkeeper.settings import Settings
from modelkeeper.zoo.catalog.catalog import Catalog
from modelkeeper.zoo.index import index_sync
from modelkeeper.zoo.index.index_snapshots import Snapshots
from modelkeeper.zoo.index.index_sync import Follower
from modelkeeper.zoo.records import ACTIVE, EVICTED, Filter
from tests.helpers import zoos

GRAPHS = [zoos.net(*widths) for widths in ((4,), (8,), (4, 4), (8, 16), (4, 8, 16))]
PREPARED = [prepare(graph) for graph in GRAPHS]


def fresh(catalog: Catalog) -> Index:
    """An index made from the records alone."""
    index = Index(threads=1)
    for record in catalog.find(Filter(states=(ACTIVE,))):
        index.add(record.key, prepare(catalog.graph(record.graph)))
    return index


def found(index: Index) -> list[dict[int, float]]:
    return [
        {match.key: match.similarity for match in index.search(each, buckets=10).matches} for each in PREPARED
    ]


steps = st.lists(
    st.tuples(
        st.sampled_from(["register", "register", "register", "remove", "evict", "search", "sweep", "reopen"]),
        st.integers(0, 1),  # which coordinator
        st.integers(0, len(GRAPHS) - 1),
    ),
    min_size=4,
    max_size=14,
)


@settings(max_examples=12)
@given(steps)
def test_both_find_what_a_full_scan_finds(taken: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_sync, "SAVE_AFTER", 2)
        given = Settings(home=home, threads=1, admission="off")
        both = [LocalCoordinator(given), LocalCoordinator(given)]
        for step, who, which in taken:
            zoo = both[who].zoo
            stored = zoo.catalog.find(Filter(), order="created")
            if step == "register":
                zoos.register(both[who], GRAPHS[which])
            elif step == "reopen":
                both[who].close()
                both[who] = LocalCoordinator(given)
            elif step == "search":
                zoo.follower.index()
            elif step == "sweep":
                both[who].gc(grace=0)
            elif stored:
                chosen = stored[which % len(stored)]
                if step == "remove":
                    both[who].remove(chosen.id)
                else:
                    zoo.catalog.retire({chosen.id: "x"}, EVICTED, clock=zoo.catalog.clock())
        expected = found(fresh(both[0].zoo.catalog))
        assert found(both[0].zoo.follower.index()) == found(both[1].zoo.follower.index()) == expected
        for each in both:
            each.close()
        again = LocalCoordinator(given)
        assert found(again.zoo.follower.index()) == expected
        again.close()


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """A catalog of ten models whose index has been saved."""
    monkeypatch.setattr(index_sync, "SAVE_AFTER", 3)
    coordinator = LocalCoordinator(Settings(home=str(tmp_path), threads=1))
    for number in range(10):
        zoos.register(coordinator, GRAPHS[number % len(GRAPHS)])
    coordinator.close()
    return Catalog(f"sqlite:///{tmp_path / 'catalog.db'}")


def saved(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "index").iterdir(), key=lambda path: int(path.name.partition("-")[0]))


def test_a_saved_index_is_opened_and_followed_up(tmp_path: Path, catalog: Catalog) -> None:
    assert saved(tmp_path)
    follower = Follower(catalog, Snapshots(tmp_path / "index"), 1)
    assert len(follower._followed.index) > 0, "it began with what was saved"
    assert found(follower.index()) == found(fresh(catalog))
    assert len(saved(tmp_path)) <= 2, "old ones go"


@pytest.mark.parametrize("which", ["index.json", "*.segment", "columns.npz"])
def test_damaged_files_are_made_anew(tmp_path: Path, catalog: Catalog, which: str) -> None:
    rng = np.random.default_rng(0)
    expected = found(fresh(catalog))
    keep = tmp_path / "kept"
    shutil.copytree(tmp_path / "index", keep)
    for number in range(24):
        shutil.rmtree(tmp_path / "index")
        shutil.copytree(keep, tmp_path / "index")
        for path in (tmp_path / "index").rglob(which):
            data = bytearray(path.read_bytes())
            at = int(rng.integers(len(data)))
            if number % 3 == 0:
                data = data[:at]
            else:
                data[at] ^= 1 << int(rng.integers(8))
            path.write_bytes(data)
        follower = Follower(catalog, Snapshots(tmp_path / "index"), 1)
        assert found(follower.index()) == expected, f"attempt {number}"
    (tmp_path / "index" / "17x").mkdir()
    (tmp_path / "index" / "5").touch()
    (tmp_path / "index" / "5-00000000").touch()
    assert found(Follower(catalog, Snapshots(tmp_path / "index"), 1).index()) == expected


def test_what_was_left_behind_goes_with_the_next_that_is_saved(tmp_path: Path) -> None:
    snapshots, index = Snapshots(tmp_path / "index"), Index(threads=1)
    snapshots.save(1, index.save)
    old, new = tmp_path / "index" / "tmp-old", tmp_path / "index" / "tmp-new"
    for folder in (old, new):
        folder.mkdir()
    os.utime(old, (0, 0))
    snapshots.save(2, index.save)
    assert (old.exists(), new.exists()) == (False, True), "another process may be saving it"


def test_an_index_of_a_later_catalog_is_not_believed(tmp_path: Path, catalog: Catalog) -> None:
    newest = saved(tmp_path)[-1]
    newest.rename(newest.with_name(f"999999-{newest.name.partition('-')[2]}"))
    assert found(Follower(catalog, Snapshots(tmp_path / "index"), 1).index()) == found(fresh(catalog))
    assert not list((tmp_path / "index").glob("999999-*"))


def test_a_folder_that_cannot_be_written_is_no_obstacle(
    tmp_path: Path, catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    follower = Follower(catalog, Snapshots(tmp_path / "file" / "index"), 1)
    assert found(follower.index()) == found(fresh(catalog))
    assert "could not be saved" in caplog.text


def test_what_another_matcher_prepared_is_prepared_anew(tmp_path: Path, catalog: Catalog) -> None:
    digest = catalog.find(Filter())[0].graph
    catalog.set_prepared(digest, b"of another version")
    assert found(Follower(catalog, Snapshots(None), 1).index()) == found(fresh(catalog))
    assert catalog.prepared([digest]) == {digest: prepare(catalog.graph(digest)).to_bytes()}
