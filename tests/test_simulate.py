"""The simulated year: it decides as the policies do, keeps the laws of retention, and is the same again."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import simulate
from benchmarks.helpers.simulated_zoo import VARIANTS, SimulatedZoo, World, fidelities, similarities
from modelkeeper.policy.admission import admit
from modelkeeper.policy.quality import Metric
from modelkeeper.policy.retention import fair_shares
from modelkeeper.policy.selection.base import Candidate
from modelkeeper.policy.selection.benefit import expected_benefit
from modelkeeper.policy.selection.fields import qualities

MODELS = 400


def test_what_is_expected_of_a_start_is_what_the_policy_says() -> None:
    alike = similarities()
    for variant, standing in [(0, 0.0), (0, 0.1), (1, 0.19), (3, 0.5), (VARIANTS - 1, 0.9)]:
        parent = Candidate(
            id="p", name="p", similarity=float(alike[0, variant]), exact=variant == 0,
            metric=Metric("accuracy", 0.5), standing=standing, data="d",
        )  # fmt: skip
        expected = fidelities()[0, variant] * qualities(np.array([standing]))[0]
        assert expected == pytest.approx(expected_benefit(parent, "d"), rel=1e-12)


def test_who_is_refused_is_whom_admission_refuses() -> None:
    world = World(MODELS, 3)
    zoo = SimulatedZoo(world, "fifo")
    for day in range(40):
        zoo.live(day)
    zoo._sum_up()
    days = [world.day(day) for day in range(40, 80)]
    coming = {name: np.concatenate([day[name] for day in days]) for name in days[0]}
    told = []
    for group, value, owner in zip(coming["group"], coming["value"], coming["owner"], strict=True):
        peers = zoo.models["group"] == group
        said = zoo.models["value"][peers].tolist(), [str(each) for each in zoo.models["owner"][peers]]
        told.append(admit(Metric("accuracy", float(value)), *said, owner=str(owner)).verdict == "admitted")
    expected = coming["value"][told].tolist()
    assert 0 < len(expected) < len(told)
    zoo._admit(coming)
    assert coming["value"].tolist() == expected


@pytest.mark.parametrize("way", simulate.WAYS)
def test_a_year_keeps_the_laws(way: str) -> None:
    """The capacity is never exceeded; who keeps no more than a fair share loses nothing, nor pins in it."""
    world = World(MODELS, 1, turnover=15)
    zoo = SimulatedZoo(world, way)
    for day in range(60):
        before = {name: column.copy() for name, column in zoo.models.items()}
        zoo.live(day)
        assert zoo.bytes <= world.capacity
        assert len({len(column) for column in zoo.models.values()}) == 1
        assert (before["bytes"] > 0).all()
    report = zoo.report(59)
    assert report["evicted"] > 0
    assert 0 < report["hit rate"] <= 1
    if way == "worth":
        assert report["owners that lost models within their fair share"] == 0
        items = zoo.items(59)
        asked = np.bincount(items.owner, items.bytes, world.owners).astype(np.int64)
        shares = fair_shares({owner: int(size) for owner, size in enumerate(asked)}, world.capacity)
        pinned = np.bincount(items.owner[items.pinned], items.bytes[items.pinned], world.owners)
        assert all(pinned[owner] <= max(shares[owner], world.capacity // world.owners) for owner in shares)
    else:
        assert report["models lost within fair shares"] > 0


def test_a_run_is_the_same_again_and_is_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["simulate", "--models", "200", "--days", "30", "--turnover", "10", "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", arguments)
    found = []
    for _ in range(2):
        run = simulate.run(200, 30, 0, 10, list(simulate.WAYS))
        found.append([{name: said for name, said in way.items() if "CPU" not in name} for way in run["ways"]])
    assert found[0] == found[1]
    simulate.main()
    page = (tmp_path / "simulate.md").read_text()
    assert "200 models, 20 trainings a day, 30 days" in page
    assert "| hit rate |" in page
