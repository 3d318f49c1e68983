"""Hugging Face's Trainer starts warm: two vision transformers on handwritten digits, the second is wider.

python examples/huggingface_trainer.py
torchrun --nproc-per-node 2 examples/huggingface_trainer.py --zoo zoo/     # nothing is fetched
"""

import argparse
import tempfile
from collections.abc import Sequence
from typing import Any

import torch
import transformers
from sklearn.datasets import load_digits

from modelkeeper.integrations.huggingface import WarmStart


def network(width: int) -> Any:
    """A vision transformer for images of 8 x 8 points."""
    sizes: dict[str, Any] = {"hidden_size": width, "intermediate_size": 2 * width, "num_attention_heads": 2}
    sizes |= {"num_hidden_layers": 2, "image_size": 8, "patch_size": 2, "num_channels": 1, "num_labels": 10}
    return transformers.ViTForImageClassification(transformers.ViTConfig(**sizes))


def accuracy(prediction: Any) -> dict[str, float]:
    """What the evaluation computes."""
    return {"accuracy": float((prediction.predictions.argmax(1) == prediction.label_ids).mean())}


def main(arguments: Sequence[str] | None = None) -> None:
    """Train twice."""
    options = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    options.add_argument("--zoo", default=tempfile.mkdtemp())
    options.add_argument("--epochs", type=int, default=4)
    chosen = options.parse_args(arguments)
    digits, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    images = digits.float().reshape(-1, 1, 8, 8) / 16
    data = [{"pixel_values": x, "labels": y} for x, y in zip(images, labels, strict=True)]
    settings: dict[str, Any] = {"eval_strategy": "epoch", "save_strategy": "no", "report_to": []}
    settings |= {
        "num_train_epochs": chosen.epochs,
        "learning_rate": 5e-3,
        "disable_tqdm": True,
        "use_cpu": True,
    }
    settings |= {f"per_device_{part}_batch_size": 32 for part in ("train", "eval")}
    args = transformers.TrainingArguments(tempfile.mkdtemp(), **settings)
    warm = WarmStart(chosen.zoo, {"data": "digits", "task": "classification"})
    for width in (32, 48):
        transformers.Trainer(
            network(width), args, None, data[:1200], data[1200:], compute_metrics=accuracy, callbacks=[warm]
        ).train()
    if args.process_index == 0:
        for answer, record in zip(warm.answers, warm.records, strict=True):
            print(f"{'cold' if answer.cold else 'warm'}: accuracy {record.value:.2f}")


if __name__ == "__main__":
    main()
