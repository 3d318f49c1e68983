"""Models of transformers in their Trainer: text, images, sound; other heads, tied weights, bf16, a search."""

from pathlib import Path
from typing import Any

import pytest

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from modelkeeper import ModelKeeperClient  # noqa: E402
from modelkeeper.integrations.huggingface import WarmStart  # noqa: E402
from tests.helpers.hugging_face import arguments, bert, gpt2, llama, t5, trainer, vit  # noqa: E402

META = {"data": "rows", "task": "rows"}


@pytest.fixture
def client(tmp_path: Path) -> ModelKeeperClient:
    return ModelKeeperClient(tmp_path / "zoo")


@pytest.mark.parametrize(
    ("build", "kind", "bf16"),
    [
        (bert, "input_ids", True),
        (gpt2, "language", False),
        (llama, "language", True),
        (t5, "language", False),
        (vit, "pixel_values", True),
    ],
)
def test_a_wider_model_starts_from_a_narrower_one(
    client: ModelKeeperClient, tmp_path: Path, build: Any, kind: str, bf16: bool
) -> None:
    warm = WarmStart(client, META)
    for width in (16, 24):
        trainer(build(width), arguments(tmp_path, num_train_epochs=1, bf16=bf16), warm, kind).train()
    assert [answer.cold for answer in warm.answers] == [True, False]
    assert [record.finished for record in warm.records] == [True, True]
    assert warm.records[1].parent == warm.records[0].id


def test_a_head_of_another_size_keeps_its_own_weights_and_the_body_is_lent(
    client: ModelKeeperClient, tmp_path: Path
) -> None:
    trainer(bert(labels=2), arguments(tmp_path), WarmStart(client, META)).train()
    parent, _ = client.query_for_model(bert(labels=2), META)
    child, answer = client.query_for_model(bert(labels=5), META)
    assert not answer.cold
    query = "bert.encoder.layer.0.attention.self.query.weight"
    assert torch.equal(child.state_dict()[query], parent.state_dict()[query])
    assert child.classifier.weight.shape == (5, 16)
    warm = WarmStart(client, META)
    trainer(bert(labels=5), arguments(tmp_path, num_train_epochs=1), warm, labels=5).train()
    assert not warm.answers[0].cold


def test_tied_weights_stay_tied(client: ModelKeeperClient, tmp_path: Path) -> None:
    warm = WarmStart(client, META)
    for _ in range(2):
        model = gpt2()
        trainer(model, arguments(tmp_path, num_train_epochs=1), warm, "language").train()
        assert model.lm_head.weight is model.transformer.wte.weight
    assert warm.answers[1].exact


def test_weights_in_bf16(client: ModelKeeperClient, tmp_path: Path) -> None:
    warm = WarmStart(client, META)
    for _ in range(2):
        model = llama().to(torch.bfloat16)
        trainer(model, arguments(tmp_path, num_train_epochs=1), warm, "language").train()
        assert {value.dtype for value in model.parameters()} == {torch.bfloat16}
    assert warm.answers[1].exact


@pytest.mark.parametrize("more", [{"gradient_checkpointing": True}, {"neftune_noise_alpha": 5.0}])
def test_settings_that_change_how_a_model_runs(
    client: ModelKeeperClient, tmp_path: Path, more: dict[str, Any]
) -> None:
    warm = WarmStart(client, META)
    for _ in range(2):
        trainer(llama(), arguments(tmp_path, num_train_epochs=1, **more), warm, "language").train()
    assert warm.answers[1].exact


def test_sound(client: ModelKeeperClient) -> None:
    config = transformers.Wav2Vec2Config(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        conv_dim=(8, 8),
        conv_kernel=(10, 8),
        conv_stride=(10, 8),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
        classifier_proj_size=8,
    )
    parent = transformers.Wav2Vec2ForSequenceClassification(config)
    assert client.register_model(parent, META | {"accuracy": 0.9}) is not None
    child, answer = client.query_for_model(transformers.Wav2Vec2ForSequenceClassification(config), META)
    assert not answer.cold
    assert torch.equal(child.projector.weight, parent.projector.weight)


@pytest.mark.slow
def test_each_trial_of_a_search_asks_and_is_registered(client: ModelKeeperClient, tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)

    class Prune(optuna.pruners.BasePruner):  # type: ignore[misc,name-defined]
        def prune(self, study: Any, trial: Any) -> bool:
            return bool(trial.number == 2)

    warm = WarmStart(client, META)
    runs = trainer(
        None,
        arguments(tmp_path),
        warm,
        model_init=lambda trial: bert(16 if trial is None else trial.suggest_categorical("width", [16, 24])),
    )
    runs.hyperparameter_search(
        hp_space=lambda trial: {"learning_rate": trial.suggest_float("learning_rate", 1e-3, 1e-2)},
        compute_objective=lambda metrics: metrics["eval_accuracy"],
        direction="maximize",
        backend="optuna",
        n_trials=3,
        sampler=optuna.samplers.RandomSampler(seed=0),
        pruner=Prune(),
    )
    assert [answer.cold for answer in warm.answers] == [True, False, False]
    assert [record.finished for record in warm.records] == [True, True, False]
    assert client.coordinator.count() == 3


@pytest.mark.slow
def test_a_search_that_evaluates_afterwards(client: ModelKeeperClient, tmp_path: Path) -> None:
    pytest.importorskip("optuna").logging.set_verbosity(40)
    warm = WarmStart(client, META)
    args = arguments(tmp_path, num_train_epochs=1, eval_strategy="no")
    runs = trainer(None, args, warm, model_init=lambda trial: bert())
    runs.hyperparameter_search(hp_space=lambda trial: {}, backend="optuna", n_trials=2)
    assert [record.finished for record in warm.records] == [True, True]
