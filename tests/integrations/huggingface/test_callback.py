"""The Trainer's callback: does a training start warm, report, end as it should, and go on where it was?"""

import pickle
from pathlib import Path
from typing import Any

import pytest

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from modelkeeper import KeeperWarning, ModelKeeperClient  # noqa: E402
from modelkeeper.errors import InvalidMeta, InvalidSetting  # noqa: E402
from modelkeeper.integrations.huggingface import WarmStart  # noqa: E402
from tests.helpers.hugging_face import Rows, arguments, bert, trainer, vit  # noqa: E402

META = {"data": "rows", "task": "classification"}


@pytest.fixture
def client(tmp_path: Path) -> ModelKeeperClient:
    return ModelKeeperClient(tmp_path / "zoo")


def weights_of(model: Any) -> dict[str, Any]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return all(torch.equal(value, second[name]) for name, value in first.items())


class Watch(transformers.TrainerCallback):  # type: ignore[misc,name-defined]
    """Looks at the model when the first step begins, and does what it is told after so many steps."""

    def __init__(self, after: int = 0, act: Any = None) -> None:
        self.began: dict[str, Any] = {}
        self.after, self.act = after, act

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.began = self.began or weights_of(kwargs["model"])

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.act is not None and state.global_step == self.after:
            self.act(kwargs["model"])


def interrupt(model: Any) -> None:
    raise KeyboardInterrupt


def spoil(model: Any) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(30)


def test_a_second_training_starts_from_the_first_and_both_are_registered(
    client: ModelKeeperClient, tmp_path: Path
) -> None:
    warm, watch = WarmStart(client, META), Watch()
    trainer(bert(16), arguments(tmp_path), warm).train()
    model = bert(24)
    before = weights_of(model)
    trainer(model, arguments(tmp_path), warm, callbacks=[watch]).train()
    cold, started = warm.answers
    assert cold.cold
    assert not started.cold
    assert started.parent == warm.records[0].id
    assert not same(before, watch.began)  # loaded in place, before the first step
    assert [record.name for record in warm.records] == ["BertForSequenceClassification"] * 2
    assert [record.finished for record in warm.records] == [True, True]
    assert warm.records[1].parent == warm.records[0].id
    assert warm.records[1].metric == "accuracy"
    assert client.coordinator.count() == 2


def test_a_cold_start_trains_as_without_the_callback(client: ModelKeeperClient, tmp_path: Path) -> None:
    ends = []
    for callbacks in ([], [WarmStart(client, META)]):
        torch.manual_seed(0)
        model = bert()
        trainer(model, arguments(tmp_path, seed=1), Watch(), callbacks=callbacks).train()
        ends.append(model.state_dict())
    assert same(*ends)


def test_the_optimizer_trains_what_was_loaded(client: ModelKeeperClient, tmp_path: Path) -> None:
    trainer(bert(16), arguments(tmp_path), WarmStart(client, META)).train()
    model, watch = bert(16), Watch()
    trainer(
        model, arguments(tmp_path, num_train_epochs=1), WarmStart(client, META), callbacks=[watch]
    ).train()
    moved = [name for name, value in model.named_parameters() if not torch.equal(value, watch.began[name])]
    assert len(moved) == len(list(model.parameters()))


@pytest.mark.parametrize(("build", "kind"), [(bert, "input_ids"), (vit, "pixel_values")])
def test_what_is_registered_is_the_best_state(
    client: ModelKeeperClient, tmp_path: Path, build: Any, kind: str
) -> None:
    """Of ViT the Trainer itself reads only a part of its best checkpoint (transformers 5.22)."""
    args = arguments(
        tmp_path / "out",
        num_train_epochs=3,
        learning_rate=0.05,
        save_strategy="epoch",
        load_best_model_at_end=True,
        metric_for_best_model="accuracy",
    )
    warm = WarmStart(client, META)
    runs = trainer(build(), args, warm, kind)
    runs.train()
    (record,) = warm.records
    assert record.value == pytest.approx(runs.state.best_metric)
    best = type(runs.model).from_pretrained(runs.state.best_model_checkpoint)
    again = build()
    _, answer = client.query_for_model(again, META)
    assert answer.parent == record.id
    assert same(again.state_dict(), best.state_dict())


def test_the_best_state_may_be_older_than_an_interruption(client: ModelKeeperClient, tmp_path: Path) -> None:
    args = arguments(tmp_path / "out", save_strategy="epoch", load_best_model_at_end=True)
    first, second = WarmStart(client, META), WarmStart(client, META)
    with pytest.raises(KeyboardInterrupt):
        trainer(bert(), args, first, callbacks=[Watch(6, interrupt)]).train()
    runs = trainer(bert(), args, second, callbacks=[Watch(7, spoil)])
    runs.train(resume_from_checkpoint=True)
    assert runs.state.best_global_step == 4
    assert second.records[0].value == pytest.approx(runs.state.best_metric)
    again, _ = client.query_for_model(bert(), META)
    assert same(again.state_dict(), runs.model.state_dict())


def test_the_metric_is_the_one_that_the_trainer_goes_by(client: ModelKeeperClient, tmp_path: Path) -> None:
    for more, monitor, name in (
        ({}, "", "accuracy"),
        ({"metric_for_best_model": "loss"}, "", "loss"),
        ({"metric_for_best_model": "loss"}, "eval_accuracy", "accuracy"),
    ):
        warm = WarmStart(client, META, monitor=monitor)
        trainer(bert(), arguments(tmp_path, num_train_epochs=1, **more), warm).train()
        assert warm.records[0].metric == name


def test_a_training_that_goes_on_is_not_asked_for_and_takes_the_place_of_its_first_half(
    client: ModelKeeperClient, tmp_path: Path
) -> None:
    trainer(bert(16), arguments(tmp_path), WarmStart(client, META)).train()
    args = arguments(tmp_path / "out", save_strategy="epoch", num_train_epochs=2)

    first = WarmStart(client, META)
    with pytest.raises(KeyboardInterrupt):
        trainer(bert(16), args, first, callbacks=[Watch(6, interrupt)]).train()
    trainer(
        bert(16), arguments(tmp_path, num_train_epochs=1), first
    ).train()  # lets go of what was interrupted
    unfinished = first.records[0]
    assert not unfinished.finished
    assert client.coordinator.count() == 3

    watch, second = Watch(), WarmStart(client, META)
    trainer(bert(16), args, second, callbacks=[watch]).train(resume_from_checkpoint=True)
    assert "checkpoint" in second.answers[0].reason
    assert second.records[0].finished
    assert second.records[0].parent == unfinished.parent
    assert client.coordinator.count() == 3


def test_a_second_training_of_the_same_model_goes_on(client: ModelKeeperClient, tmp_path: Path) -> None:
    warm = WarmStart(client, META)
    runs = trainer(bert(), arguments(tmp_path, num_train_epochs=1), warm)
    runs.train()
    runs.train()
    assert warm.answers[1].reason == "not asked: the model has been trained before"
    assert len(warm.records) == 2


@pytest.mark.parametrize("pretrained", ["keep", "ask"])
def test_pretrained_weights_are_kept_unless_they_are_not_to_be(
    client: ModelKeeperClient, tmp_path: Path, pretrained: str
) -> None:
    bert().save_pretrained(tmp_path / "base")
    trainer(bert(), arguments(tmp_path), WarmStart(client, META)).train()
    model = transformers.BertForSequenceClassification.from_pretrained(
        tmp_path / "base", num_labels=3, ignore_mismatched_sizes=True
    )
    before, watch = weights_of(model), Watch()
    warm = WarmStart(client, META, pretrained=pretrained)
    args = arguments(tmp_path, num_train_epochs=1)
    trainer(model, args, warm, callbacks=[watch], labels=3).train()
    assert same(before, watch.began) == (pretrained == "keep")
    assert warm.answers[0].cold == (pretrained == "keep")
    assert len(warm.records) == 1


def test_a_name_in_the_config_is_no_proof_of_pretrained_weights(
    client: ModelKeeperClient, tmp_path: Path
) -> None:
    trainer(bert(), arguments(tmp_path), WarmStart(client, META)).train()
    bert().save_pretrained(tmp_path / "base")
    config = transformers.AutoConfig.from_pretrained(tmp_path / "base")
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    warm = WarmStart(client, META)
    trainer(model, arguments(tmp_path, num_train_epochs=1), warm).train()
    assert not warm.answers[0].cold


def test_early_stopping_ends_a_training(client: ModelKeeperClient, tmp_path: Path) -> None:
    args = arguments(
        tmp_path / "out",
        num_train_epochs=9,
        learning_rate=0.0,
        save_strategy="epoch",
        save_total_limit=1,
        load_best_model_at_end=True,
    )
    warm = WarmStart(client, META)
    stopping = transformers.EarlyStoppingCallback(early_stopping_patience=1)
    runs = trainer(bert(), args, warm, callbacks=[stopping])
    runs.train()
    assert runs.state.global_step < runs.state.max_steps
    assert warm.records[0].finished
    assert warm.records[0].metric == "loss"


def test_without_evaluation_it_says_so_and_waits_for_one(client: ModelKeeperClient, tmp_path: Path) -> None:
    warm = WarmStart(client, META)
    runs = trainer(
        bert(), arguments(tmp_path, num_train_epochs=1, eval_strategy="no", eval_on_start=True), warm
    )
    with pytest.warns(KeeperWarning, match=r"trainer\.evaluate"):
        runs.train()
    assert client.coordinator.count() == 0
    measured = runs.evaluate()
    assert warm.records[0].value == pytest.approx(measured["eval_accuracy"])
    runs.evaluate(Rows("input_ids", 16, 2))
    assert client.coordinator.count() == 1


def test_only_asking(client: ModelKeeperClient, tmp_path: Path) -> None:
    warm = WarmStart(client, META, register=False)
    trainer(bert(), arguments(tmp_path, num_train_epochs=1), warm).train()
    assert len(warm.answers) == 1
    assert client.coordinator.count() == 0


def test_what_cannot_be_so_is_said_when_it_is_made(client: ModelKeeperClient) -> None:
    with pytest.raises(InvalidMeta, match="did you mean"):
        WarmStart(client, {"dat": "rows"})
    with pytest.raises(InvalidSetting, match="keep"):
        WarmStart(client, META, pretrained="maybe")
    with pytest.raises(InvalidSetting, match="mode="):
        WarmStart(client, META, monitor="eval_cheer")


def test_a_keeper_that_is_down_stops_no_training(tmp_path: Path) -> None:
    client = ModelKeeperClient("http://127.0.0.1:9", timeout=0.2)
    with pytest.warns(KeeperWarning):
        trainer(bert(), arguments(tmp_path, num_train_epochs=1), WarmStart(client, META)).train()


def test_it_goes_to_other_processes(client: ModelKeeperClient, tmp_path: Path) -> None:
    warm = WarmStart(client, META)
    trainer(bert(), arguments(tmp_path, num_train_epochs=1), warm).train()
    again = pickle.loads(pickle.dumps(warm))
    trainer(bert(), arguments(tmp_path, num_train_epochs=1), again).train()
    assert not again.answers[-1].cold
