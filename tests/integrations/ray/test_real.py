"""Does a real cluster of Ray, with two workers, start trials warm and keep one model of each?"""

import ast
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")

from ray import tune
from ray.train import RunConfig as TrainRunConfig
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer
from ray.tune.schedulers import ASHAScheduler, PopulationBasedTraining

from modelkeeper import ModelKeeperClient
from modelkeeper.integrations.ray import WarmStart
from modelkeeper.zoo.records import Record
from tests.helpers import ray_trials
from tests.helpers.ray_trials import META

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.usefixtures("cluster")


def run_config(folder: Path, **more: Any) -> tune.RunConfig:
    return tune.RunConfig(storage_path=str(folder / "results"), verbose=0, **more)


def zoo_of(warm: WarmStart) -> list[Record]:
    return warm.client.coordinator.models()


def test_a_grid_starts_warm_and_each_trial_is_one_finished_model(tmp_path: Path) -> None:
    warm = WarmStart(tmp_path / "zoo", META)
    space = {"width": tune.grid_search([4, 8, 12])}
    config = tune.TuneConfig(max_concurrent_trials=1, reuse_actors=True)
    tuner = warm.tuner(
        ray_trials.of_a_grid, param_space=space, tune_config=config, run_config=run_config(tmp_path)
    )
    results: Any = tuner.fit()
    assert not results.errors
    assert [result.metrics["modelkeeper"]["start"] for result in results] == ["cold", "warm", "warm"]
    records = zoo_of(warm)
    assert [(record.value, record.finished) for record in records] == [(0.52, True)] * 3
    assert sum(bool(record.parent) for record in records) == 2


def test_what_a_scheduler_stops_is_registered_with_its_last_report(tmp_path: Path) -> None:
    """Versions are written at most once an hour here: what waits is written when the trial is stopped."""
    warm = WarmStart(tmp_path / "zoo", META, every=3600.0)
    space = {"width": 4, "epochs": 9, "good": tune.grid_search([0.9, 0.1])}
    halving = ASHAScheduler(max_t=4, grace_period=2, reduction_factor=2)
    config = tune.TuneConfig(metric="accuracy", mode="max", scheduler=halving, max_concurrent_trials=1)
    tuner = warm.tuner(
        ray_trials.of_a_grid, param_space=space, tune_config=config, run_config=run_config(tmp_path)
    )
    results: Any = tuner.fit()
    ends = {result.config["good"]: result.metrics for result in results}
    records = zoo_of(warm)
    assert len(records) == 2
    assert {record.value for record in records} == {metrics["accuracy"] for metrics in ends.values()}
    for record in records:
        (metrics,) = [each for each in ends.values() if each["accuracy"] == record.value]
        assert record.finished == (metrics["training_iteration"] == 4)
    assert {record.finished for record in records} == {True, False}


def test_a_process_that_dies_leaves_what_it_wrote(tmp_path: Path) -> None:
    warm = WarmStart(tmp_path / "zoo", META, every=0.0)
    space = {"width": 4, "epochs": 3, "dies": 1}
    tuner = warm.tuner(ray_trials.of_a_grid, param_space=space, run_config=run_config(tmp_path))
    assert len(tuner.fit().errors) == 1
    (record,) = zoo_of(warm)
    assert not record.finished


@pytest.mark.slow
def test_a_population_exploits_across_widths(tmp_path: Path) -> None:
    warm = WarmStart(tmp_path / "zoo", META)
    population = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=1,
        hyperparam_mutations={"width": [4, 8, 16, 24]},
        quantile_fraction=0.5,
        resample_probability=1.0,
        synch=True,
    )
    space = {"width": tune.grid_search([4, 8])}
    config = tune.TuneConfig(metric="accuracy", mode="max", scheduler=population, reuse_actors=True)
    stop = {"training_iteration": 3}
    tuner = warm.tuner(
        ray_trials.of_a_population,
        param_space=space,
        tune_config=config,
        run_config=run_config(tmp_path, stop=stop),
    )
    results: Any = tuner.fit()
    assert not results.errors
    assert max(result.metrics["exact"] for result in results) >= 0, "nobody went on from another"
    assert len(zoo_of(warm)) == 2
    assert all(record.finished for record in zoo_of(warm))


@pytest.mark.slow
def test_a_class_is_used_for_several_trials(tmp_path: Path) -> None:
    warm = WarmStart(tmp_path / "zoo", META)
    space = {"width": 4, "good": tune.grid_search([0.5, 0.6, 0.7])}
    config = tune.TuneConfig(reuse_actors=True, max_concurrent_trials=1)
    checkpoints = tune.CheckpointConfig(checkpoint_at_end=True)
    stop = {"training_iteration": 2}
    tuner = warm.tuner(
        ray_trials.Stepwise,
        param_space=space,
        tune_config=config,
        run_config=run_config(tmp_path, stop=stop, checkpoint_config=checkpoints),
    )
    results: Any = tuner.fit()
    assert not results.errors
    assert [result.metrics["modelkeeper"]["start"] for result in results] == ["cold", "warm", "warm"]
    records = zoo_of(warm)
    assert sorted((record.value, record.finished) for record in records) == [
        (0.52, True),
        (0.62, True),
        (0.72, True),
    ]


@pytest.mark.slow
def test_a_trainer_with_two_workers_starts_warm_on_both_and_registers_once(tmp_path: Path) -> None:
    warm = WarmStart(tmp_path / "zoo", META)
    parent = warm.client.register_model(ray_trials.net(4), META | {"accuracy": 0.5})
    trainer = TorchTrainer(
        warm.loop(ray_trials.on_each_rank),
        train_loop_config={"width": 6, "good": 0.6, "folder": str(tmp_path)},
        scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
        run_config=TrainRunConfig(storage_path=str(tmp_path / "results"), name="mine"),
    )
    trainer.fit()
    assert (tmp_path / "0").read_text() == (tmp_path / "1").read_text()
    record, other = zoo_of(warm)
    assert parent is not None
    assert (other.id, other.hits) == (parent.id, 1), "both workers start from it, and it is asked for once"
    assert (record.value, record.finished, record.name, record.parent) == (0.6, True, "mine", other.id)


@pytest.mark.slow
def test_a_client_of_a_module_goes_to_the_workers(tmp_path: Path) -> None:
    """By `tune.with_parameters`, without `WarmStart`; nobody says when it ends, so it stays unfinished."""
    client = ModelKeeperClient(tmp_path / "zoo")
    trainable = tune.with_parameters(ray_trials.with_a_client_of_its_own, client=client)
    config = tune.TuneConfig(max_concurrent_trials=1, reuse_actors=True)
    tuner = tune.Tuner(
        trainable,
        param_space={"width": tune.grid_search([4, 8])},
        tune_config=config,
        run_config=run_config(tmp_path),
    )
    results: Any = tuner.fit()
    assert not results.errors
    assert [result.metrics["cold"] for result in results] == [True, False]
    assert [record.finished for record in client.coordinator.models()] == [False, False]


@pytest.mark.slow
def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(ROOT / "examples" / "ray_tune_search.py"), run_name="example")
    example["main"](["--widths", "8"])
    lines = capsys.readouterr().out.splitlines()
    assert sum("epochs, accuracy" in line for line in lines) == 2
    assert sum("in the zoo" in line for line in lines) == 2


def test_the_page_is_python_and_imports_what_there_is() -> None:
    """What its blocks show is run above."""
    page = (ROOT / "docs" / "integrations" / "ray.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 5
    for block in blocks:
        for node in ast.parse(block).body:
            if isinstance(node, ast.ImportFrom):
                exec(compile(ast.Module([node], []), "docs/integrations/ray.md", "exec"), {})
