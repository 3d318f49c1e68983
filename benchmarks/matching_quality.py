"""How good are alignments on real networks? Tables to benchmarks/results/matching-quality.md.

self      a network aligned with itself by the kernel (no shortcut for equal fingerprints): all covered?
twins     the same network with its branches written in another order: mapped onto itself?
pairs     for pairs of related networks: the share of the child's parameters that lie in a layer of
          equal shape (exact) and that the parent could fill (overlap); mappings against the data
          flow; series mapped to parallel or the other way round; changes when branches are permuted
tangled   networks that are not series-parallel, against one chain in canonical order
libraries one network as two libraries write it
weights   which constants choose the better parent (`--weights`, written to matching-weights.md)
"""

import argparse
import random
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.helpers.corpus import IMAGENET, TRANSFORMER, cifar, graphs, shuffled, twins
from modelkeeper import _native
from modelkeeper.graph import Graph
from modelkeeper.matching import Alignment, Prepared, align, prepare, similarity
from modelkeeper.matching.alignment import _layers
from modelkeeper.matching.similarity import KNOBS

RESULTS = Path(__file__).parent / "results"

PAIRS = """resnet20_cifar10>resnet56_cifar10 resnet56_cifar10>resnet20_cifar10
resnet56_cifar10>resnet110_cifar10 resnet20_cifar10>seresnet20_cifar10 seresnet20_cifar10>resnet20_cifar10
resnet20_cifar10>preresnet20_cifar10 preresnet20_cifar10>sepreresnet56_cifar10
resnet164bn_cifar10>resnet272bn_cifar10 ror3_56_cifar10>resnet56_cifar10
resnet56_cifar10>ror3_56_cifar10 wrn28_10_cifar10>wrn40_8_cifar10 wrn16_10_cifar10>wrn28_10_cifar10
resnet20_cifar10>wrn16_10_cifar10 densenet40_k12_cifar10>densenet100_k12_cifar10
densenet40_k12_bc_cifar10>densenet40_k24_bc_cifar10 densenet40_k12_cifar10>densenet40_k12_bc_cifar10
resnext20_16x4d_cifar10>resnext29_32x4d_cifar10 resnext20_16x4d_cifar10>resnext20_32x4d_cifar10
pyramidnet110_a48_cifar10>pyramidnet110_a270_cifar10
shakeshakeresnet20_2x16d_cifar10>shakeshakeresnet26_2x32d_cifar10
resnet20_cifar10>shakeshakeresnet20_2x16d_cifar10 diaresnet20_cifar10>diaresnet56_cifar10
resnet20_cifar10>nin_cifar10 resnet18>resnet34 resnet34>resnet18 resnet50>resnet101 resnet18>resnet50
resnet50>resnext50_32x4d resnet50>seresnet50 resnet50>cbam_resnet50 resnet18>vgg16 vgg16>resnet50
vgg11>vgg16 vgg16>bn_vgg16 alexnet>vgg11 densenet121>densenet169 mobilenet_wd4>mobilenet_w1
mobilenetv2_w1>mobilenetv2b_w1 mobilenetv2_w1>mnasnet_b1 mobilenetv3_small_w1>mobilenetv3_large_w1
efficientnet_b0>efficientnet_b1 efficientnet_b0>mobilenetv3_large_w1 inceptionv3>inceptionv4
inceptionv3>resnet50 inceptionv4>inceptionresnetv1 regnetx004>regnety004 bert>electra bert>distilbert
vit>bert gpt2>llama bart>t5""".split()
TANGLED = """hrnet_w18_small_v1>hrnet_w18_small_v2 nasnet_4a1056>pnasnet5large pnasnet5large>nasnet_4a1056
darts>nasnet_4a1056 nasnet_4a1056>darts dla34>dla60 dpn68>densenet121 fishnet99>resnet50
msdnet22_cifar10>resnet56_cifar10 hrnet_w18_small_v1>resnet18 resnet18>hrnet_w18_small_v1
fractalnet_cifar10>resnet20_cifar10 polynet>inceptionv4 vovnet39>hardnet68 sparsenet121>densenet121
201:4>201:6 201:6>201:4 201:4>201:w""".split()


def main() -> None:
    """Make all tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weights", action="store_true", help="compare constants instead (some minutes)")
    arguments = parser.parse_args()
    found = graphs([*cifar(), *IMAGENET, *TRANSFORMER]) | nas_bench_201()
    RESULTS.mkdir(exist_ok=True)
    if arguments.weights:
        lines, path = compare_constants(found), RESULTS / "matching-weights.md"
    else:
        lines, path = tables(found), RESULTS / "matching-quality.md"
    path.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


NOTES = """
Where no node is crossed by every path (NAS networks, HRNet), a graph has no series-parallel regions. Tried
there, in this order: one chain in canonical order (the columns on the right; it covers most, but maps series
to parallel); regions only where a part has one entry and one exit (no gain: HRNet has such parts, NAS cells
have none); a region for every merge, of all that leads to it alone, its branches matched as branches (fewest
flips, but cells of different design then share too little: NASNet > PNASNet fell from 0.352 to 0.328); the
same, with paths that may also cross all branches in turn, kept. Against a chain in the same order, NASNet,
PNASNet and DARTS gain 1 % of score and lose some flips, cells of NAS-Bench-201 of another width gain 4 %;
HRNet gains nothing, and with ResNet scores below the chain, which may flip. Against the chain in the order
of the first attempt, DARTS and NASNet stand where they stood (0.677 after 0.678).

That every further difference lowers the similarity is a law that tests hold for series-parallel graphs
(chains, residual, dense and inception blocks, transformers, with or without a mask that feeds every layer).
On generated NAS cells, towers and wiring at random the best path alone broke it at 291 of 14,590 steps: it is
not the best alignment there, and a change can lead to a better one. Now pairs are tried that take the place
of others (`src/native/improve.hpp`), from the path's pairs and from those whose surroundings are most alike:
`matching-laws.md` counts what is left. That is done for two tangled graphs of up to 320 elements; larger ones
(DARTS and NASNet for large pictures) keep the best path. Tried as well: the same where only one of the two is
tangled (little gain, and searches take longer; not kept), and an order in which widths come last (the same
failures). HRNet with HRNet stands where it stood. What no alignment can repair: to take away a child's layer
that was matched, but badly (for less than three quarters of the similarity), makes the two more similar. A
share of the parent alone would not do so, but would count nothing that a child lacks.
""".strip().splitlines()


def tables(found: dict[str, Graph]) -> list[str]:
    """Every table but that of the constants."""
    prepared = {name: prepare(graph) for name, graph in found.items()}
    lines = [
        "# Quality of alignments",
        "",
        f"{len(found)} real networks. Made by `python -m benchmarks.matching_quality`.",
        "",
    ]
    covered = [name for name, model in prepared.items() if not by_kernel(model, model).skipped_child]
    lines += ["| question | networks | yes |", "| --- | --- | --- |"]
    lines.append(
        f"| aligned with itself by the kernel, every layer is matched | {len(found)} | {len(covered)} |"
    )
    rng, onto, same = random.Random(0), 0, 0
    for name, graph in found.items():
        twin = shuffled(graph, rng)
        onto += is_isomorphism(graph, twin, align(prepared[name], twin))
        same += is_isomorphism(graph, twin, by_kernel(prepared[name], prepare(twin)))
    lines.append(f"| a twin with permuted branches is mapped isomorphically | {len(found)} | {onto} |")
    lines.append(
        f"| ... by the kernel, without the shortcut for equal fingerprints | {len(found)} | {same} |"
    )
    lines += ["", "## One network, two libraries (pytorchcv, transformers)", ""]
    lines += [
        "| network | similarity | layers with parameters matched | parameters in layers of equal shape |",
        "| --- | --- | --- | --- |",
    ]
    for name, (ours, theirs) in twins().items():
        result = align(theirs, ours)
        owning = {v for v, layer in enumerate(ours.layers) if any(not t.buffer for t in layer.tensors)}
        share = len(owning & {c for _, c in result.pairs}) / len(owning)
        lines.append(
            f"| {name} | {result.similarity:.3f} | {share:.0%} | {transfer(theirs, ours, result)[0]:.1%} |"
        )
    for title, names in (
        ("Pairs of related networks", PAIRS),
        ("Networks that are not series-parallel", TANGLED),
    ):
        lines += ["", f"## {title}", "", *pair_table(found, prepared, names)]
    return [*lines, "", *shrinking(found), "", *NOTES]


def shrinking(found: dict[str, Graph]) -> list[str]:
    """Which of a parent's equal blocks lend to a child that has fewer of them?"""
    import torch
    import transformers

    from modelkeeper.frontends.torch import describe

    def language(name: str, depth: int) -> Graph:
        library: Any = transformers  # its models have no types
        size = {"vocab_size": 50, "bos_token_id": 0, "eos_token_id": 0}
        if name == "bert":
            sizes = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
            model = library.BertModel(library.BertConfig(**size, **sizes, num_hidden_layers=depth))
        else:
            model = library.GPT2Model(library.GPT2Config(**size, n_embd=32, n_head=4, n_layer=depth))
        return describe(model.eval(), (torch.zeros(1, 8, dtype=torch.long),))

    pairs = [
        (f"{name}, {deep} > {shallow} layers", language(name, deep), language(name, shallow))
        for name in ("bert", "gpt2")
        for deep, shallow in ((6, 5), (6, 3), (12, 6))
    ]
    pairs.append(("resnet56 > resnet20, last stage", found["resnet56_cifar10"], found["resnet20_cifar10"]))
    lines = [
        "## Which of equal blocks lend to a child that has fewer",
        "",
        "The first to the first, the last ones to the others. In MiniLM, 6 layers to 3, layers 0, 4 and 5",
        "keep a cosine of 0.78 with the parent's output before any training; layers 3, 4, 5 of 0.70, layers",
        "0, 3, 5 of 0.73, layers 0, 2, 4 of 0.39, layers 0, 1, 2 of 0.35. 6 layers to 5: without layer 1",
        "0.95, without the last 0.46.",
        "",
        "| parent > child | blocks of the parent, for each of the child's |",
        "| --- | --- |",
    ]
    for title, parent, child in pairs:
        numbers: dict[int, set[int]] = {}
        for p, c in align(parent, child).pairs:
            names = parent.layers[p].name, child.layers[c].name
            of = [re.search(r"(?:layer|h|stage3\.unit)\.?(\d+)\.", name) for name in names]
            if of[0] and of[1]:
                numbers.setdefault(int(of[1][1]), set()).add(int(of[0][1]))
        blocks = [" and ".join(map(str, sorted(numbers[c]))) for c in sorted(numbers)]
        lines.append(f"| {title} | {', '.join(blocks)} |")
    return lines


def pair_table(found: dict[str, Graph], prepared: dict[str, Prepared], names: list[str]) -> list[str]:
    """One row for each pair, beside what one chain in canonical order gives."""
    lines = [
        "| parent > child | similarity | exact / overlap, % of the child's parameters | flips "
        "| as one chain: score | exact / overlap | flips |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    sums, against, changed, count, rng = np.zeros(7), 0, 0, 0, random.Random(1)
    for name in names:
        a, b = name.split(">")
        if a not in found or b not in found:
            continue
        result, plain = align(prepared[a], prepared[b]), chain(prepared[a], prepared[b])
        score, other = result.layer_score + result.edge_score, plain.layer_score + plain.edge_score
        exact, overlap = transfer(found[a], found[b], result)
        chain_exact, chain_overlap = transfer(found[a], found[b], plain)
        reversed_pairs, flips = crossings(found[a], found[b], result)
        _, chain_flips = crossings(found[a], found[b], plain)
        against += reversed_pairs > 0
        changed += align(shuffled(found[a], rng), shuffled(found[b], rng)).similarity != result.similarity
        count += 1
        sums += np.array(
            [result.similarity, exact, overlap, flips > 0, other / max(score, 1), chain_exact, chain_overlap]
        )
        lines.append(
            f"| {name} | {result.similarity:.3f} | {100 * exact:.0f} / {100 * overlap:.0f} | {flips} | "
            f"{other / max(score, 1):.2f} | {100 * chain_exact:.0f} / {100 * chain_overlap:.0f} "
            f"| {chain_flips} |"
        )
    mean = sums / count
    lines.append(
        f"| mean of {count} | {mean[0]:.3f} | {100 * mean[1]:.0f} / {100 * mean[2]:.0f} "
        f"| in {sums[3]:.0f} pairs | {mean[4]:.2f} | "
        f"{100 * mean[5]:.0f} / {100 * mean[6]:.0f} | |"
    )
    lines += ["", f"Against the data flow: {against} pairs. Changed by permuting branches: {changed} pairs."]
    return lines


def by_kernel(parent: Prepared, child: Prepared) -> Alignment:
    """`align` without the shortcut for equal fingerprints."""
    return align(replace(parent, fingerprint="0" * 32), child)


def chain(parent: Prepared, child: Prepared) -> Alignment:
    """Both graphs as one chain each, in canonical order, matched by dynamic programming: the plain way."""
    table = _native.rewards(parent.tokens, child.tokens, KNOBS)
    sides = [
        [(x, int(t)) for x, t in enumerate(m.form[8 : 8 + int(m.form[0])]) if t != 0xFFFF]
        for m in (parent, child)
    ]
    gain = table[np.ix_([t for _, t in sides[0]], [t for _, t in sides[1]])].astype(np.int64)
    n, m = gain.shape
    best = np.zeros((n + 1, m + 1), np.int64)
    for i in range(n):
        best[i + 1, 1:] = np.maximum.accumulate(np.maximum(best[i, 1:], best[i, :-1] + gain[i]))
    elements, i, j = [], n, m
    while i and j:
        if best[i - 1, j] == best[i, j]:
            i -= 1
        elif best[i, j - 1] == best[i, j]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            elements.append((sides[0][i][0], sides[1][j][0]))
    matched = _layers(parent, child, np.array(elements, np.int64).reshape(-1, 2))
    pairs = tuple((int(p), int(c)) for p, c in matched)
    return Alignment(
        pairs, 0.0, int(best[n, m]), _edges(parent, child, elements), parent.total, child.total, (), ()
    )


def _edges(parent: Prepared, child: Prepared, elements: Iterable[tuple[int, int]]) -> int:
    image = {y: x for x, y in elements}
    known = {(source, target): label for source, target, label in _edge_list(parent)}
    found = [(known.get((image.get(s, -1), image.get(t, -1))), label) for s, t, label in _edge_list(child)]
    return sum(int(KNOBS[2] if mine == label else KNOBS[3]) for mine, label in found if mine is not None)


def _edge_list(model: Prepared) -> list[tuple[int, int, int]]:
    form, elements, edges = model.form, int(model.form[0]), int(model.form[7])
    tail = len(form) - 2 * edges
    offsets = form[tail - elements - 1 : tail]
    return [
        (int(form[tail + e]), x, int(form[tail + edges + e]))
        for x in range(elements)
        for e in range(offsets[x], offsets[x + 1])
    ]


def transfer(parent: Graph, child: Graph, result: Alignment) -> tuple[float, float]:
    """Shares of the child's parameters: in tensors of equal shape, and that the parent's could fill."""
    exact = overlap = 0
    for p, c in result.pairs:
        lent = {tensor.role: tensor.shape for tensor in parent.layers[p].tensors}
        for tensor in child.layers[c].tensors:
            other = lent.get(tensor.role)
            if tensor.buffer or other is None:
                continue
            exact += tensor.size * (other == tensor.shape)
            if len(other) == len(tensor.shape):
                overlap += int(np.prod([min(a, b) for a, b in zip(other, tensor.shape, strict=True)]))
    whole = sum(tensor.size for layer in child.layers for tensor in layer.tensors if not tensor.buffer)
    return exact / whole, overlap / whole


def crossings(parent: Graph, child: Graph, result: Alignment) -> tuple[int, int]:
    """How many pairs of pairs go against the data flow; how many map series to parallel or back."""
    before, behind = reach(parent), reach(child)
    pairs = np.array(result.pairs).reshape(-1, 2)
    p, c = before[np.ix_(pairs[:, 0], pairs[:, 0])], behind[np.ix_(pairs[:, 1], pairs[:, 1])]
    return int((p & c.T).sum()), int((p & ~c & ~c.T).sum() + (c & ~p & ~p.T).sum())


def reach(graph: Graph) -> "np.ndarray[tuple[int, int], np.dtype[np.bool_]]":
    """reach[a, b]: does data flow from layer a to layer b?"""
    found = np.zeros((len(graph.layers), len(graph.layers)), np.bool_)
    for v, layer in enumerate(graph.layers):
        for edge in layer.inputs:
            found[:, v] |= found[:, edge.source]
            found[edge.source, v] = True
    return found


def is_isomorphism(parent: Graph, child: Graph, result: Alignment) -> bool:
    """Is every layer matched, with its like, and every edge with an edge?"""
    image = {c: p for p, c in result.pairs}
    if len(image) < len(child.layers) or len(child.layers) != len(parent.layers):
        return False
    for c, layer in enumerate(child.layers):
        other = parent.layers[image[c]]
        alike = layer.kind == other.kind and [t.shape for t in layer.tensors] == [
            t.shape for t in other.tensors
        ]
        if not alike or sorted((image[e.source], e.via) for e in layer.inputs) != sorted(
            (e.source, e.via) for e in other.inputs
        ):
            return False
    return True


def nas_bench_201() -> dict[str, Graph]:
    """Networks of NAS-Bench-201 cells: four nodes, an operation on each of the six edges."""
    import torch
    from torch import nn

    from modelkeeper.frontends.torch import describe

    class Cell(nn.Module):
        def __init__(self, operations: str, width: int) -> None:
            super().__init__()
            self.operations = operations
            self.convs = nn.ModuleList(
                nn.Sequential(
                    nn.ReLU(),
                    nn.Conv2d(width, width, int(o), padding=int(o) // 2, bias=False),
                    nn.BatchNorm2d(width),
                )
                if o in "13"
                else nn.Identity()
                for o in operations
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            nodes, edge = [x], 0
            for target in range(1, 4):
                arriving = [
                    self.convs[edge + s](nodes[s]) for s in range(target) if self.operations[edge + s] != "0"
                ]
                edge += target
                nodes.append(
                    torch.stack([torch.zeros_like(x), *arriving]).sum(0)
                    if not arriving
                    else sum(arriving[1:], arriving[0])
                )
            return nodes[-1]

    def network(operations: str, cells: int, width: int) -> Graph:
        stages: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)]
        for stage in range(3):
            stages += [Cell(operations, width << stage) for _ in range(cells)]
            if stage < 2:
                stages += [
                    nn.Conv2d(width << stage, width << stage + 1, 3, 2, 1, bias=False),
                    nn.BatchNorm2d(width << stage + 1),
                ]
        return describe(
            nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width * 4, 10)),
            (torch.zeros(1, 3, 32, 32),),
        )

    # the best cell on CIFAR-10 in the benchmark: 3x3 everywhere but one 1x1 and one skip
    return {
        "201:4": network("3331s3", 4, 16),
        "201:6": network("3331s3", 6, 16),
        "201:w": network("331s33", 4, 24),
    }


def compare_constants(found: dict[str, Graph]) -> list[str]:
    """For each setting of the weights: which parent would be chosen, and what could it lend?"""
    names = [name for name, graph in found.items() if len(graph.layers) < 420]
    lines = [
        "# Which weights choose the better parent?",
        "",
        f"Each of {len(names)} real networks as a child, its parent chosen among the others by similarity",
        "alone. Overlap: the share of the child's parameters that the parent could fill.",
        "Family: the parent's name begins alike. Same place: of pairs of networks that differ in width",
        "alone, the share of parameters that are matched with the layer of the same number.",
        "Whether a warm start helps training is another question; these are proxies.",
        "",
        "| weight of a layer | shape ratio | exact, % | overlap, % | same family, % | same place, % |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    weights = {"each the same": None, "eighth root of parameters": 3, "fourth root": 2, "square root": 1}
    for title, roots in weights.items():
        for shape_roots, shape_title in enumerate(("as it is", "square root", "fourth root", "eighth root")):
            chosen = _with(found, names, roots, shape_roots)
            lines.append(
                f"| {title} | {shape_title} | " + " | ".join(f"{100 * value:.0f}" for value in chosen) + " |"
            )
            print(lines[-1], flush=True)
    return lines


SAME_DEPTH = """mobilenet_wd4>mobilenet_w1 resnext20_16x4d_cifar10>resnext20_32x4d_cifar10
densenet40_k12_bc_cifar10>densenet40_k24_bc_cifar10 pyramidnet110_a48_cifar10>pyramidnet110_a270_cifar10
densenet40_k24_bc_cifar10>densenet40_k36_bc_cifar10 densenet100_k12_cifar10>densenet100_k24_cifar10
pyramidnet110_a48_cifar10>pyramidnet110_a84_cifar10 201:4>201:w""".split()


def _with(found: dict[str, Graph], names: list[str], roots: int | None, shape_roots: int) -> list[float]:
    kept = similarity.WEIGHT_ROOTS, similarity.WEIGHT_SCALE, int(KNOBS[0])
    # 10,000 parameters weigh 1 in every setting; no root at all: every layer weighs 1
    similarity.WEIGHT_ROOTS = 40 if roots is None else roots
    similarity.WEIGHT_SCALE = 1.0 if roots is None else 10_000 ** -(0.5**roots)
    KNOBS[0] = shape_roots
    try:
        models = {name: prepare(found[name]) for name in names}
        sums = np.zeros(3)
        for name in names:
            ranked = {
                other: align(models[other], models[name])
                for other in names
                if other != name and found[other].fingerprint != found[name].fingerprint
            }
            best = max(ranked, key=lambda other: ranked[other].similarity)
            sums += [*transfer(found[best], found[name], ranked[best]), family(best) == family(name)]
        place = []
        for pair in SAME_DEPTH:
            a, b = pair.split(">")
            if a in found and b in found and len(found[a].layers) == len(found[b].layers):
                result = align(found[a], found[b])
                straight = replace(result, pairs=tuple((p, c) for p, c in result.pairs if p == c))
                every = replace(result, pairs=tuple((v, v) for v in range(len(found[a].layers))))
                place.append(
                    transfer(found[a], found[b], straight)[1] / transfer(found[a], found[b], every)[1]
                )
        return [*(sums / len(names)), float(np.mean(place))]
    finally:
        similarity.WEIGHT_ROOTS, similarity.WEIGHT_SCALE, KNOBS[0] = kept


def family(name: str) -> str:
    """A name up to its first number: resnet for resnet20_cifar10."""
    found = re.match(r"[a-z]+", name)
    return found[0] if found else name


if __name__ == "__main__":
    main()
