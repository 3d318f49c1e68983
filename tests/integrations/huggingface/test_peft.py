"""Adapters of peft: is the base kept, is nothing registered under a score that is not its own?"""

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")

from modelkeeper import KeeperWarning, ModelKeeperClient  # noqa: E402
from modelkeeper.errors import ModelRefused  # noqa: E402
from modelkeeper.integrations.huggingface import WarmStart  # noqa: E402
from tests.helpers.hugging_face import arguments, bert, trainer  # noqa: E402

META = {"data": "rows", "task": "rows"}


@pytest.fixture
def client(tmp_path: Path) -> ModelKeeperClient:
    client = ModelKeeperClient(tmp_path / "zoo")
    trainer(bert(), arguments(tmp_path), WarmStart(client, META)).train()
    return client


def lora(base: Any) -> Any:
    return peft.get_peft_model(base, peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query"]))


def base_of(model: Any) -> dict[str, Any]:
    trained = ("lora_", "modules_to_save")
    return {k: v.clone() for k, v in model.state_dict().items() if not any(word in k for word in trained)}


def test_a_base_under_adapters_is_kept_and_they_are_not_registered(
    client: ModelKeeperClient, tmp_path: Path
) -> None:
    model = lora(bert())
    before, warm = base_of(model), WarmStart(client, META)
    with pytest.warns(KeeperWarning, match="merge_and_unload"):
        trainer(model, arguments(tmp_path, num_train_epochs=1), warm).train()
    assert "before get_peft_model" in warm.answers[0].reason
    assert warm.records == []
    assert all(torch.equal(value, before[name]) for name, value in base_of(model).items())
    assert client.coordinator.count() == 1


def test_a_base_is_asked_for_before_and_what_was_merged_is_registered_after(
    client: ModelKeeperClient, tmp_path: Path
) -> None:
    base, answer = client.query_for_model(bert(), META)
    assert not answer.cold
    model = lora(base)
    runs = trainer(model, arguments(tmp_path, num_train_epochs=1), WarmStart(client, META, register=False))
    runs.train()
    record = client.register_model(model.merge_and_unload(), META | {"metrics": runs.evaluate()})
    assert record is not None
    assert record.name == "BertForSequenceClassification"


def test_a_query_leaves_the_base_and_the_factors_alone(client: ModelKeeperClient) -> None:
    model = lora(bert())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    client.query_for_model(model, META | {"minimum_similarity": 0.0})
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert all("modules_to_save" in name for name in changed)  # a head that is trained as a whole


def test_adapters_are_refused_whoever_registers_them(client: ModelKeeperClient, tmp_path: Path) -> None:
    for model in (lora(bert()), lora(bert()).base_model.model):
        with pytest.warns(KeeperWarning, match="it is an adapter on a base"):
            assert client.register_model(model, META | {"accuracy": 0.9}) is None
    strict = ModelKeeperClient(tmp_path / "zoo", on_error="raise")
    with pytest.raises(ModelRefused):
        strict.register_model(lora(bert()), META | {"accuracy": 0.9})
