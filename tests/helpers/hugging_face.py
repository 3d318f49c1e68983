"""Tiny models of transformers, data that they can learn, and a Trainer that takes a second."""

from pathlib import Path
from typing import Any

import torch
import transformers as _transformers
from torch import Tensor
from torch.utils.data import Dataset

transformers: Any = _transformers  # configs have no types for what they all take: num_labels ...
VOCABULARY, LENGTH, SIDE = 40, 8, 8


class Rows(Dataset[dict[str, Tensor]]):
    """Examples of a question that a small model learns in seconds: is the first number a large one?"""

    def __init__(self, kind: str, count: int = 64, seed: int = 0, labels: int = 2) -> None:
        drawn = torch.Generator().manual_seed(seed)
        if kind == "pixel_values":
            self.inputs = torch.rand(count, 3, SIDE, SIDE, generator=drawn)
            first = self.inputs.mean((1, 2, 3)).argsort().argsort() / count
        else:
            self.inputs = torch.randint(3, VOCABULARY, (count, LENGTH), generator=drawn)
            first = (self.inputs[:, 0] - 3) / (VOCABULARY - 3)
        self.kind, self.labels = kind, (first * labels).long().clamp(max=labels - 1)
        if kind == "language":
            self.kind, self.labels = "input_ids", self.inputs

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {self.kind: self.inputs[index], "labels": self.labels[index]}


def bert(width: int = 16, labels: int = 2, **more: Any) -> Any:
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=LENGTH,
        num_labels=labels,
        **more,
    )
    return transformers.BertForSequenceClassification(config)


def gpt2(width: int = 16, **more: Any) -> Any:
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=width,
        n_layer=1,
        n_head=2,
        n_positions=LENGTH,
        bos_token_id=1,
        eos_token_id=2,
        **more,
    )
    return transformers.GPT2LMHeadModel(config)


def llama(width: int = 16, **more: Any) -> Any:
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=LENGTH,
        **more,
    )
    return transformers.LlamaForCausalLM(config)


def t5(width: int = 16, **more: Any) -> Any:
    config = transformers.T5Config(
        vocab_size=VOCABULARY,
        d_model=width,
        d_kv=8,
        d_ff=2 * width,
        num_layers=1,
        num_heads=2,
        decoder_start_token_id=0,
        **more,
    )
    return transformers.T5ForConditionalGeneration(config)


def vit(width: int = 16, labels: int = 2, **more: Any) -> Any:
    config = transformers.ViTConfig(
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=SIDE,
        patch_size=4,
        num_labels=labels,
        **more,
    )
    return transformers.ViTForImageClassification(config)


def accuracy(prediction: Any) -> dict[str, float]:
    """What a user gives as `compute_metrics`."""
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def arguments(folder: Path, **more: Any) -> Any:
    """Arguments of a training on a CPU that leaves nothing behind but what is asked for."""
    chosen: dict[str, Any] = {
        "num_train_epochs": 2,
        "per_device_train_batch_size": 16,
        "per_device_eval_batch_size": 64,
        "learning_rate": 5e-3,
        "eval_strategy": "epoch",
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }
    return transformers.TrainingArguments(str(folder), **{**chosen, **more})


def trainer(model: Any, args: Any, warm: Any, kind: str = "input_ids", **more: Any) -> Any:
    """A Trainer with the callback, and others."""
    labels = more.pop("labels", 2)
    chosen: dict[str, Any] = {"compute_metrics": None if kind == "language" else accuracy}
    chosen |= {"train_dataset": Rows(kind, 64, 0, labels), "eval_dataset": Rows(kind, 32, 1, labels)}
    callbacks = [warm, *more.pop("callbacks", [])]
    return transformers.Trainer(model, args, callbacks=callbacks, **{**chosen, **more})
