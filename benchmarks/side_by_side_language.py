"""What do two parents bring where they are not exact, under layer norms? `make side-by-side`

The protocol: tiny GPT-2s of two layers read the State of the Union speeches, character by character. Parents
are 32 wide and trained for 1,000 steps of cosine, the child is 64 wide. A layer norm over both parents
divides each by what both have in common, so the child does not compute their mean, but nearly. The loss (nats
a character, on text that is not trained on; lower is better) of

    parents   the better one, and the other
    mean      the mean of their logits, which the child would compute were it exact
    one       the child from the better parent alone: at the start, and after 250 steps of cosine
    two       the same from both
    cold      the child from scratch after 1,000 steps

over three seeds, with a head that is tied to the table of characters, and with one of its own.
Goes on where it was stopped. Writes benchmarks/results/side_by_side_language.json and .md.
"""

import json
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.helpers.catalogue import transformer
from benchmarks.training.tasks import task
from modelkeeper import transfer

RESULTS = Path(__file__).parent / "results"
SEEDS = (0, 1, 2)
STEPS, SHORT = 1_000, 250
PEAK, WARM_UP, BATCH, CONTEXT = 3e-3, 20, 16, 64
NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
Record = dict[str, Any]


def build(width: int, tied: bool, seed: int) -> nn.Module:
    """A GPT-2 with heads of eight units, newly initialised."""
    torch.manual_seed(seed)
    sizes = {"n_embd": width, "n_head": width // 8, "n_layer": 2, "n_positions": CONTEXT}
    symbols = task("speeches").classes
    return transformer("gpt2", vocab_size=symbols, tie_word_embeddings=tied, **sizes, **NO_DROPOUT).eval()


def logits(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """What a model says of the next character."""

    def say(pieces: Tensor) -> Tensor:
        found: Tensor = model(pieces).logits
        return found

    return say


def trained(model: nn.Module, seed: int, count: int) -> nn.Module:
    """The model after so many steps of cosine to zero."""
    text = task("speeches")
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), PEAK, betas=(0.9, 0.98), weight_decay=0.01)
    model.train()
    for step in range(count):
        cosine = (1 + math.cos(math.pi * step / count)) / 2
        optimizer.param_groups[0]["lr"] = PEAK * min(1.0, (step + 1) / WARM_UP) * cosine
        chosen = torch.randint(len(text.inputs), (BATCH,), generator=generator)
        said = logits(model)(text.inputs[chosen])
        optimizer.zero_grad()
        torch.autograd.backward(cross_entropy(said.flatten(0, 1), text.targets[chosen].flatten()))
        optimizer.step()
    return model.eval()


def loss(say: Callable[[Tensor], Tensor]) -> float:
    """On text that is held out, in nats."""
    text = task("speeches")
    with torch.inference_mode():
        return cross_entropy(say(text.held_out).flatten(0, 1), text.held_targets.flatten()).item()


def measure(tied: bool, seed: int) -> Record:
    """All arms of one seed."""
    seeds = 10 * seed + 1, 10 * seed + 2
    parents = [trained(build(32, tied, each), each, STEPS) for each in seeds]
    parents.sort(key=lambda parent: loss(logits(parent)))
    record: Record = {"tied": tied, "seed": seed, "parents": [loss(logits(parent)) for parent in parents]}
    record["mean"] = loss(lambda pieces: torch.stack([logits(each)(pieces) for each in parents]).mean(0))
    for arm, lenders in (("one", parents[:1]), ("two", parents)):
        child = build(64, tied, seed)
        report = transfer(lenders, child, task("speeches").held_out[:2], verify=True)
        start = loss(logits(child))
        end = loss(logits(trained(child, seed, SHORT)))
        record[arm] = {"start": start, "end": end, "difference": report.difference, "exact": report.exact}
    record["cold"] = {"end": loss(logits(trained(build(64, tied, seed), seed, STEPS)))}
    return record


def page(records: list[Record]) -> str:
    """The table, and the paired difference."""
    lines = ["# Two GPT-2s side by side", "", "Made by `make side-by-side`; its protocol stands there.", ""]
    lines += [f"{len(records)} of {2 * len(SEEDS)} runs are done.", ""]
    lines += [
        "| head | seed | parents | mean | one: start | two: start | one: 250 | two: 250 | cold: 1,000 |"
    ]
    lines += ["| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for record in records:
        losses = [record[arm][when] for when in ("start", "end") for arm in ("one", "two")]
        cells = ["tied" if record["tied"] else "its own", str(record["seed"])]
        cells.append(" + ".join(f"{each:.3f}" for each in record["parents"]))
        cells += [f"{each:.3f}" for each in (record["mean"], *losses, record["cold"]["end"])]
        lines.append("| " + " | ".join(cells) + " |")
    lines.append("")
    for name, other in (("one parent, 250 steps", "one"), ("cold, 1,000 steps", "cold")):
        gains = [record[other]["end"] - record["two"]["end"] for record in records]
        error = statistics.stdev(gains) / math.sqrt(len(gains))
        better = sum(gain > 0 for gain in gains)
        lines.append(
            f"- two parents after 250 steps against {name}: {statistics.fmean(gains):+.3f} ±{error:.3f} nats "
            f"(standard error), better in {better} of {len(gains)}"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure what is not measured yet, and write the page."""
    torch.set_num_threads(1)
    file = RESULTS / "side_by_side_language.json"
    records: list[Record] = json.loads(file.read_text()) if file.exists() else []
    done = {(record["tied"], record["seed"]) for record in records}
    for tied in (True, False):
        for seed in SEEDS:
            if (tied, seed) not in done:
                records.append(measure(tied, seed))
                file.write_text(json.dumps(records, indent=1) + "\n")
                print(json.dumps(records[-1]), flush=True)
    file.with_suffix(".md").write_text(page(records))
    print(page(records))


if __name__ == "__main__":
    main()
