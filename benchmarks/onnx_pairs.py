"""Does a torch model lend to its own ONNX export, and the export to it? Real models. `make pairs`

Each model gets random weights with norms that matter, is exported by torch's exporters, and described from
both sides. Then the export loses its weights and gets them back from the torch model, and the other way
round; what onnxruntime computes is compared with what torch computes. torch's exporter folds norms into
convolutions, and positions into tables, unless it is told not to (`optimize=False`): both are shown, as users
have both.
Writes benchmarks/results/onnx_pairs.json and onnx_pairs.md.
"""

import contextlib
import copy
import io
import json
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from torch import Tensor, nn

from modelkeeper.frontends.onnx import OnnxModel, describe, load, read
from modelkeeper.frontends.torch import describe as describe_torch
from modelkeeper.matching import align
from modelkeeper.warmstart.transfer import transfer
from modelkeeper.weights import Array

RESULTS = Path(__file__).parent / "results"
CLOSE = 1e-5  # a relative difference of outputs that rounding explains
Case = tuple[nn.Module, Tensor]


class Logits(nn.Module):
    """A model of transformers that gives its logits alone."""

    def __init__(self, model: Any, key: str = "input_ids") -> None:
        super().__init__()
        self.model, self.key = model, key

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        logits: Tensor = self.model(**{self.key: x}).logits
        return logits


class Sequences(nn.Module):
    """Words, a recurrent layer, a head on its last output."""

    def __init__(self, cell: nn.Module, width: int) -> None:
        super().__init__()
        self.table, self.cell, self.head = nn.Embedding(50, 12), cell, nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        scores: Tensor = self.head(self.cell(self.table(x))[0][:, -1])
        return scores


def image(name: str) -> Callable[[], Case]:
    """A model of pytorchcv."""

    def make() -> Case:
        from pytorchcv.model_provider import get_model

        return get_model(name), torch.randn(1, 3, 224, 224)

    return make


def bert() -> Case:
    """A small BERT."""
    from transformers import BertConfig, BertForSequenceClassification

    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
    }
    config = BertConfig(vocab_size=100, max_position_embeddings=32, **sizes)
    return Logits(BertForSequenceClassification(config)), torch.randint(0, 100, (2, 16))


def gpt2() -> Case:
    """A small GPT-2."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=100, n_embd=32, n_layer=2, n_head=4, n_positions=32, use_cache=False)
    return Logits(GPT2LMHeadModel(config)), torch.randint(0, 100, (2, 16))


def vit() -> Case:
    """A small vision transformer."""
    from transformers import ViTConfig, ViTForImageClassification

    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
    }
    config = ViTConfig(image_size=32, patch_size=8, **sizes)
    return Logits(ViTForImageClassification(config), "pixel_values"), torch.randn(2, 3, 32, 32)


def words(cell: nn.Module, width: int) -> Callable[[], Case]:
    """A recurrent network."""
    return lambda: (Sequences(cell, width), torch.randint(0, 50, (2, 7)))


IMAGES = "resnet18 mobilenetv2_w1 mobilenetv3_small_w1 shufflenetv2_wd2 efficientnet_b0 densenet121 bn_vgg11"
MODELS: dict[str, Callable[[], Case]] = {
    "lstm": words(nn.LSTM(12, 16, batch_first=True), 16),
    "lstm, 2 layers, both ways": words(nn.LSTM(12, 16, 2, batch_first=True, bidirectional=True), 32),
    "gru": words(nn.GRU(12, 16, batch_first=True), 16),
    "bert": bert,
    "gpt2": gpt2,
    "vit": vit,
    **{name: image(name) for name in IMAGES.split()},
}
ANY_LENGTH = ({1: torch.export.Dim.DYNAMIC},)  # of texts: positions are then no table
EXPORTS: dict[str, dict[str, Any]] = {
    "as it is": {"dynamo": True},
    "nothing folded": {"dynamo": True, "optimize": False},
    "any length": {"dynamo": True, "dynamic_shapes": ANY_LENGTH},
    "old exporter": {"dynamo": False},
}


def build(name: str) -> Case:
    """A model with random weights and norms that matter, and what it takes."""
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.02)
        for buffer_name, buffer in model.named_buffers():
            if buffer_name.endswith(("running_mean", "running_var")):
                buffer.add_(torch.rand_like(buffer) * 0.3)
    return model.eval(), inputs


def export(model: nn.Module, inputs: Tensor, path: Path, options: dict[str, Any]) -> bool:
    """Export a model; False: torch cannot."""
    quiet = io.StringIO()
    try:
        with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            torch.onnx.export(model, (inputs,), str(path), external_data=False, **options)
    except Exception:  # noqa: BLE001 (whatever torch raises: the row says that there is none)
        return False
    return True


def outputs(model: OnnxModel, inputs: Tensor, folder: Path) -> Array:
    """What onnxruntime computes, without its own optimizations."""
    model.save(folder / "run.onnx")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(folder / "run.onnx"), options, ["CPUExecutionProvider"])
    return np.asarray(session.run(None, {session.get_inputs()[0].name: inputs.numpy()})[0])


def measure(name: str, how: str, folder: Path) -> dict[str, Any] | None:
    """One row: how alike, what was promised, what was found; None: torch cannot export it so."""
    model, inputs = build(name)
    path = folder / "model.onnx"
    if not export(model, inputs, path, EXPORTS[how]):
        return None
    with torch.no_grad():
        expected = model(inputs).numpy()
    graph, exported = describe_torch(model, inputs), describe(OnnxModel(path), (inputs,))
    emptied = OnnxModel(path)
    rng = np.random.default_rng(0)
    drawn = {key: rng.standard_normal(array.shape, np.float32) * 0.1 for key, array in read(emptied)}
    load(emptied, drawn)
    to_onnx = transfer(model, emptied, (inputs,))
    spoiled = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in spoiled.parameters():
            parameter.add_(torch.randn_like(parameter))
    to_torch = transfer(OnnxModel(path), spoiled, (inputs,))
    with torch.no_grad():
        found = spoiled(inputs).numpy()

    def difference(array: Array) -> float:
        return float(np.abs(array - expected).max() / np.abs(expected).max())

    return {
        "model": name,
        "export": how,
        "same": graph.fingerprint == exported.fingerprint,
        "opaque": sorted({note.text for note in exported.notes}),
        "similarity": [
            round(align(graph, exported).similarity, 4),
            round(align(exported, graph).similarity, 4),
        ],
        "exact": [to_onnx.exact, to_torch.exact],
        "difference": [difference(outputs(to_onnx.model, inputs, folder)), difference(found)],
    }


def report(rows: list[dict[str, Any]]) -> str:
    """The rows as a table."""
    about = (
        "Left: torch lends to ONNX; right: ONNX lends to torch. Differences are those of outputs, relative."
    )
    lines = ["# torch models and their own ONNX exports", "", f"Made by `make pairs`. {about}"]
    lines += ["", "| model | export | similarity | | plan | | difference | |"]
    lines += ["| --- | --- | ---: | ---: | --- | --- | ---: | ---: |"]
    for row in rows:
        plans = ["exact" if exact else "approximate" for exact in row["exact"]]
        numbers = [f"{value:.0e}" for value in row["difference"]]
        alike = [f"{value:.3f}" for value in row["similarity"]]
        lines.append("| " + " | ".join([row["model"], row["export"], *alike, *plans, *numbers]) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure all models, or those that are named, write the table, fail on a promise that does not hold."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    names, file = sys.argv[1:] or list(MODELS), RESULTS / "onnx_pairs.json"
    known = json.loads(file.read_text()) if file.exists() else []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            texts = build(name)[1].dtype == torch.int64
            found = [measure(name, how, Path(folder)) for how in EXPORTS if texts or how != "any length"]
            known = [row for row in known if row["model"] != name] + [row for row in found if row]
            rows = sorted(known, key=lambda row: list(MODELS).index(row["model"]))
            file.write_text(json.dumps(rows, indent=1) + "\n")
            (RESULTS / "onnx_pairs.md").write_text(report(rows))
            print(report([row for row in found if row]), flush=True)
    wrong = [
        f"{row['model']} ({row['export']})"
        for row in known
        if any(exact and far > CLOSE for exact, far in zip(row["exact"], row["difference"], strict=True))
    ]
    if wrong:
        sys.exit(f"promised exact, but not: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
