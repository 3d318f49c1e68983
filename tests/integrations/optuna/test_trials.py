"""warm_trial: trials of real studies. How do they start, what is kept of them, however they end?"""

import runpy
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

optuna: Any = pytest.importorskip("optuna")
torch: Any = pytest.importorskip("torch")

from modelkeeper import KeeperWarning, ModelKeeperClient  # noqa: E402
from modelkeeper.errors import InvalidMeta, InvalidSetting  # noqa: E402
from modelkeeper.integrations.optuna import summary, tell, warm_trial  # noqa: E402
from tests.helpers.pages import ROOT, run_page  # noqa: E402

META = {"data": "digits", "task": "classification"}
optuna.logging.set_verbosity(optuna.logging.ERROR)


def net(width: int = 8) -> Any:
    return torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.ReLU(), torch.nn.Linear(width, 2))


@pytest.fixture
def client(tmp_path: Path) -> Iterator[ModelKeeperClient]:
    with ModelKeeperClient(tmp_path / "zoo", user="ann") as opened:
        yield opened


def test_a_study_starts_warm_and_says_so(
    client: ModelKeeperClient, capsys: pytest.CaptureFixture[str]
) -> None:
    def objective(trial: Any) -> float:
        model = net(trial.suggest_categorical("width", [8, 12]))
        with warm_trial(trial, model, META, client=client, metric="accuracy") as run:
            for step in range(3):
                run.report(0.5 + step / 10 + trial.number / 100, step, train_loss=0.1)
        return run.value or 0.0

    study = optuna.create_study(direction="maximize")
    study.optimize(objective, n_trials=3, callbacks=[tell])
    first, *others = study.trials
    assert first.user_attrs["modelkeeper.start"] == "cold"
    ids = {trial.user_attrs["modelkeeper.model"]: trial for trial in study.trials}
    for trial in others:
        assert trial.user_attrs["modelkeeper.parent"] in ids
        assert 0.3 < trial.user_attrs["modelkeeper.similarity"] <= 1
    assert list(first.intermediate_values.values()) == pytest.approx([0.5, 0.6, 0.7])
    records = client.coordinator.models()
    assert {record.id for record in records} == set(ids)
    for record in records:
        assert (record.metric, record.finished) == ("accuracy", True)
        assert record.value == pytest.approx(ids[record.id].value)
    told = capsys.readouterr().out.splitlines()
    assert told[0] == f"trial 0: complete, 0.7, cold, {first.user_attrs['modelkeeper.model']}"
    assert "warm from Sequential" in told[1]
    assert "warm from Sequential" in summary(study)


def test_a_pruned_trial_leaves_its_best_as_unfinished(client: ModelKeeperClient) -> None:
    class Strict(optuna.pruners.BasePruner):  # type: ignore[misc]
        def prune(self, study: Any, trial: Any) -> bool:
            return bool(trial.number == 1 and trial.last_step == 1)

    def objective(trial: Any) -> float:
        model = net()
        with warm_trial(trial, model, META, client=client, metric="val_loss", every=3600) as run:
            for step in range(4):
                run.report(1.0 - step / 10, step)
                if trial.should_prune():
                    raise optuna.TrialPruned
        return 0.7

    study = optuna.create_study(direction="minimize", pruner=Strict())
    study.optimize(objective, n_trials=2)
    done, pruned = study.trials
    assert pruned.state == optuna.trial.TrialState.PRUNED
    assert (done.user_attrs["modelkeeper.finished"], pruned.user_attrs["modelkeeper.finished"]) == (
        True,
        False,
    )
    kept = {record.id: record for record in client.coordinator.models()}
    record = kept[pruned.user_attrs["modelkeeper.model"]]
    assert (record.metric, record.value, record.finished) == ("loss", 0.9, False)
    assert len(kept) == 2
    assert "(unfinished)" in summary(study)


def test_a_failed_or_diverged_trial_leaves_what_it_had_and_the_study_goes_on(
    client: ModelKeeperClient,
) -> None:
    def objective(trial: Any) -> float:
        model = net()
        with warm_trial(trial, model, META, client=client, metric="accuracy") as run:
            if trial.number == 0:
                raise ValueError("before the first report")
            run.report(0.5, 0)
            if trial.number == 1:
                raise RuntimeError("out of memory")
            if trial.number == 2:
                with torch.no_grad():
                    model[0].weight.fill_(float("nan"))
                run.report(float("nan"), 1)
        return run.value or 0.0

    study = optuna.create_study(direction="maximize")
    study.optimize(objective, n_trials=4, catch=(ValueError, RuntimeError))
    assert [trial.state.name for trial in study.trials] == ["FAIL", "FAIL", "FAIL", "COMPLETE"]
    kept = [trial.user_attrs.get("modelkeeper.finished") for trial in study.trials]
    assert kept == [None, False, False, True]
    assert [record.value for record in client.coordinator.models()] == [0.5, 0.5, 0.5]
    assert "nothing" in summary(study)


def test_weights_that_are_no_numbers_do_not_end_the_study(client: ModelKeeperClient) -> None:
    def objective(trial: Any) -> float:
        model = net()
        with warm_trial(trial, model, META, client=client, metric="accuracy") as run:
            with torch.no_grad():
                model[0].weight.fill_(float("nan"))
            run.report(0.1, 0)
        return 0.1

    study = optuna.create_study(direction="maximize")
    with pytest.warns(KeeperWarning, match=r"(?i)not kept|not registered"):
        study.optimize(objective, n_trials=1)
    assert study.trials[0].state.name == "COMPLETE"
    assert client.coordinator.count() == 0


def test_a_keeper_that_is_down_ends_no_study() -> None:
    def objective(trial: Any) -> float:
        with warm_trial(trial, net(), META, client="http://127.0.0.1:9", metric="accuracy") as run:
            run.report(0.5, 0)
        return 0.5

    study = optuna.create_study(direction="maximize")
    with pytest.warns(KeeperWarning) as warned:
        study.optimize(objective, n_trials=1)
    assert "starts cold" in str(warned[0].message)
    assert study.best_value == 0.5


def test_threads_share_a_client(client: ModelKeeperClient) -> None:
    def objective(trial: Any) -> float:
        model = net(trial.suggest_categorical("width", [8, 12, 16]))
        with warm_trial(trial, model, META, client=client, metric="accuracy") as run:
            for step in range(2):
                run.report(0.5 + trial.number / 100, step)
        return run.value or 0.0

    study = optuna.create_study(direction="maximize")
    study.optimize(objective, n_trials=8, n_jobs=2)
    ids = [trial.user_attrs["modelkeeper.model"] for trial in study.trials]
    assert len(set(ids)) == 8
    assert {record.id for record in client.coordinator.models()} == set(ids)


@pytest.mark.slow
def test_processes_of_one_study_register_each_trial_once(tmp_path: Path) -> None:
    zoo, journal = str(tmp_path / "zoo"), str(tmp_path / "journal")
    script = f"""
        import optuna, torch
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend
        from modelkeeper.integrations.optuna import warm_trial

        def objective(trial):
            model = torch.nn.Linear(4, trial.suggest_int("width", 2, 4))
            with warm_trial(trial, model, {META!r}, client={zoo!r}, metric="accuracy") as run:
                for step in range(3):
                    run.report(0.5 + step / 100, step)
            return run.value

        storage = JournalStorage(JournalFileBackend({journal!r}))
        study = optuna.create_study(
            study_name="s", storage=storage, load_if_exists=True, direction="maximize"
        )
        study.optimize(objective, n_trials=3)
    """
    workers = [subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)]) for _ in range(2)]
    assert [worker.wait() for worker in workers] == [0, 0]
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    study = optuna.load_study(study_name="s", storage=JournalStorage(JournalFileBackend(journal)))
    ids = {trial.user_attrs["modelkeeper.model"] for trial in study.trials}
    assert len(ids) == len(study.trials) == 6
    with ModelKeeperClient(zoo) as client:
        assert {record.id for record in client.coordinator.models()} == ids


def test_a_retry_takes_the_place_of_the_trial_that_failed(client: ModelKeeperClient) -> None:
    def attempt(value: float, end: str, **more: Any) -> Any:
        trial = study.ask()
        with warm_trial(trial, net(), META, client=client, metric="accuracy", **more) as run:
            run.report(value, 0)
            if end == "stop":
                run.end(early=True)
        return trial, run

    study = optuna.create_study(direction="maximize")
    first, _ = attempt(0.4, "stop")
    study.tell(first, state=optuna.trial.TrialState.FAIL)
    study.add_trial(
        optuna.trial.create_trial(
            state=optuna.trial.TrialState.WAITING, system_attrs={"failed_trial": first.number}
        )
    )
    _, run = attempt(0.6, "", resumed=True)
    assert run.answer.cold
    assert "checkpoint" in run.answer.reason
    (record,) = client.coordinator.models()
    assert (record.value, record.finished) == (0.6, True)


def test_folds_are_models_of_their_own_and_do_not_leak(client: ModelKeeperClient) -> None:
    def objective(trial: Any) -> float:
        scores = []
        for fold in range(2):
            meta = META | {"fold": fold}
            with warm_trial(trial, net(), meta, client=client, metric="accuracy") as run:
                run.report(0.5 + fold / 10, 0)
                run.report(0.6 + fold / 10, 1)
            scores.append(run.value or 0.0)
        return sum(scores) / 2

    study = optuna.create_study(direction="maximize")
    study.optimize(objective, n_trials=2)
    first, second = (trial.user_attrs for trial in study.trials)
    assert [first[f"modelkeeper.fold {fold}.start"] for fold in range(2)] == ["cold", "cold"]
    for fold in range(2):
        assert second[f"modelkeeper.fold {fold}.parent"] == first[f"modelkeeper.fold {fold}.model"]
    assert study.trials[0].intermediate_values == {}
    assert client.coordinator.count() == 4
    assert "fold 1: warm from" in " ".join(summary(study).split())


@pytest.mark.filterwarnings("ignore:.*set_metric_names is experimental")
@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_without_a_name_the_metric_is_the_studys_own_in_its_direction(
    client: ModelKeeperClient, direction: str
) -> None:
    study = optuna.create_study(direction=direction, study_name="mine")
    with warm_trial(study.ask(), net(), META, client=client) as run:
        for step, value in enumerate((3.0, 1.0, 2.0)):
            run.report(value, step)
    assert run.record is not None
    assert (run.record.metric, run.record.value) == ("mine_objective", {"mi": 1.0, "ma": 3.0}[direction[:2]])
    study.set_metric_names(["val_f1"])
    with warm_trial(study.ask(), net(), META, client=client) as run:
        run.report(0.5)
    assert run.record is not None
    assert run.record.metric == "f1"


def test_several_objectives(client: ModelKeeperClient) -> None:
    study = optuna.create_study(directions=["maximize", "minimize"])
    with pytest.raises(InvalidSetting, match="mode"), warm_trial(study.ask(), net(), META, client=client):
        pass
    with warm_trial(study.ask(), net(), META, client=client, metric="accuracy") as run:
        run.report(0.5, 0, latency=3.0)
    assert run.record is not None
    assert run.record.metrics == {"accuracy": 0.5, "latency": 3.0, "step": 0.0}


def test_an_objective_can_be_tried_out_and_what_cannot_be_so_is_said(client: ModelKeeperClient) -> None:
    fixed = optuna.trial.FixedTrial({})
    with warm_trial(fixed, net(), META, client=client, metric="accuracy") as run:
        run.report(0.5, 0)
    assert fixed.user_attrs["modelkeeper.start"] == "cold"
    with pytest.raises(InvalidMeta, match="did you mean"), warm_trial(fixed, net(), {"dat": "x"}):
        pass


def test_only_asking(client: ModelKeeperClient) -> None:
    study = optuna.create_study(direction="maximize")
    with warm_trial(study.ask(), net(), META, client=client, metric="accuracy", register=False) as run:
        run.report(0.5, 0)
    assert (run.record, client.coordinator.count()) == (None, 0)


def test_the_page_and_the_example_run(capsys: pytest.CaptureFixture[str]) -> None:
    run_page("docs/integrations/optuna.md", capsys)
    example = runpy.run_path(str(ROOT / "examples" / "optuna_search.py"), run_name="example")
    example["main"](["--trials", "2", "--epochs", "1"])
    printed = capsys.readouterr().out
    assert printed.index("cold: best accuracy") < printed.index("warm: best accuracy")
    assert printed.count("warm from Sequential") == 1
