"""Make a plan from an alignment: will the child compute what the parent computes, and if not, why not?

Exactness is judged here, and strictly: every layer of the parent is used, every space grows in a way that
changes nothing, data flows along the same ways through the same operations, whatever was inserted hands on
what it is given. One doubt, and the plan says that it is approximate, and why.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable
from fractions import Fraction

import msgspec

from modelkeeper.errors import InvalidPairs, InvalidSetting
from modelkeeper.graph import Atom, Concat, Fixed, Graph, Layer, leaves
from modelkeeper.graph.vocabulary import (
    COMMUTATIVE,
    CONCAT,
    CONSTANTS,
    COUNT,
    ENDS,
    INPUT,
    OUTPUT,
    USUAL_EPSILON,
    WINDOWED,
)
from modelkeeper.matching import Alignment
from modelkeeper.matching.twins import twin_pairs
from modelkeeper.patience import go_on
from modelkeeper.transform.lending import FROZEN, Lending, with_statistics
from modelkeeper.transform.pairing import Pairs, spaces_of
from modelkeeper.transform.plan import Entry, Plan
from modelkeeper.transform.whole_blocks import settle

MOST_DOUBTS = 8
Fed = tuple[int | None, tuple[str, ...]]  # by which layer, over which operations


# long: what may be asked for, and the words that explain it.
def make_plan(
    parent: Graph,
    child: Graph,
    alignment: Alignment | Pairs,
    *,
    same_task: bool = True,
    seed: int = 0,
    noise: float = 0.0,
    compose: bool = True,
    frozen: Collection[str] = (),
) -> Plan:
    """Make the plan of a transform: for each tensor of `child`, where its values come from.

    Args:
        parent: The model that lends.
        child: The model that receives.
        alignment: Of the two: models that differ in nothing but their widths are then paired layer by
            layer, whatever it says. Or just these pairs, as (number in the parent, number in the child).
        same_task: Do both predict the same things? If not, the head starts as it was initialised.
        seed: Of which units are copied, and by which shares they are read.
        noise: The deviation of what is added to the identity in inserted layers, times the root of how many
            weights make a unit. More than 0 is never exact, and `make deepening` finds nothing gained by it.
        compose: Let a layer stand for several in a row that the parent has (see `compose`).
        frozen: Tensors of the child, by name, that keep their values. So do the statistics of a batch norm
            that is fed by frozen layers: they are statistics of what these make.

    Raises:
        InvalidSetting: `noise` is negative or no number.
        InvalidPairs: A pair names a layer that is not there, or one that is in another pair.
    """
    if isinstance(alignment, Alignment):
        pairs: Pairs = twin_pairs(parent, child) or alignment.pairs
    else:
        pairs = _checked(parent, child, alignment)
    if not 0 <= noise < math.inf:
        raise InvalidSetting("noise", str(noise), "give 0 for exact identities, or a small positive number")

    kept = with_statistics(child, frozenset(frozen))

    def planned(pairs: Pairs) -> Plan:
        lending = Lending(parent, child, pairs, same_task, seed, noise, compose, kept)
        entries = lending.entries()
        doubts = tuple(dict.fromkeys(_doubts(lending, entries)))
        return Plan(
            parent=parent,
            child=child,
            entries=entries,
            doubts=doubts,
            pairs=lending.pairs,
            maps=lending.maps,
            seed=seed,
            noise=noise,
            merges=lending.taken_over,
            epsilons=lending.epsilons.of,
            frozen=kept,
            doubled=frozenset(lending.depth.doubled),
            rewired=_rewired(lending),
        )

    settled = settle(parent, child, pairs)
    plan = planned(settled)
    if plan.doubts and set(settled) != set(pairs):  # settling is a guess: here is who can judge it
        plan = min(plan, planned(pairs), key=lambda candidate: len(candidate.doubts))
    return msgspec.structs.replace(plan, doubts=shortened(plan.doubts))


def shortened(doubts: tuple[str, ...]) -> tuple[str, ...]:
    """No more doubts than anybody reads."""
    if len(doubts) <= MOST_DOUBTS:
        return doubts
    return (*doubts[:MOST_DOUBTS], f"and {len(doubts) - MOST_DOUBTS} more")


def _checked(parent: Graph, child: Graph, pairs: Pairs) -> Pairs:
    """Check that pairs name layers there are, each at most once."""
    for side, (who, graph) in enumerate((("parent", parent), ("child", child))):
        seen: set[int] = set()
        for pair in pairs:
            if not 0 <= pair[side] < len(graph.layers):
                raise InvalidPairs(f"{tuple(pair)}", f"the {who} has {len(graph.layers)} layers")
            if pair[side] in seen:
                raise InvalidPairs(f"{tuple(pair)}", f"the {who}'s layer {pair[side]} is in two pairs")
            seen.add(pair[side])
    return pairs


def _doubts(lending: Lending, entries: Iterable[Entry]) -> Iterable[str]:
    """Every reason why the child may compute something else than the parent."""
    frozen = sum(entry.why == FROZEN for entry in entries if not entry.exact)
    if frozen:
        yield f"{frozen:,} {'tensor is' if frozen == 1 else 'tensors are'} frozen and kept"
    for entry in entries:
        if not entry.exact and entry.why != FROZEN:
            yield f"{entry.tensor} is {entry.action}: {entry.why}"
    used = {*lending.partner.values(), *lending.merges.gone}
    lent = {*(pair.parent.name for pair in lending.pairs.values()), *lending.merges.taken}
    for number, layer in enumerate(lending.parent.layers):
        if number in lending.composites.within:
            continue
        if number not in used and layer.kind not in ENDS:
            yield f"the parent's {layer.kind} {layer.name} is not used"
        for tensor in layer.tensors:
            if (
                tensor.live
                and tensor.name not in lent
                and tensor.role != COUNT
                and layer.kind not in ENDS
                and tensor.stored
            ):
                yield f"the parent's {tensor.name} is not used"
    for number, layer in enumerate(lending.child.layers):
        go_on()
        if number in lending.partner:
            yield from _flow(lending, number, layer)
        elif layer.kind not in ENDS and not lending.depth.harmless(number):
            yield f"the child's {layer.kind} {layer.name} has no partner"
    yield from _statistics(lending)
    yield from _shares(lending, entries)
    yield from _approximations(lending)
    yield from _order(lending)


def _rewired(lending: Lending) -> float:
    """Of the child's layers, how many have a partner that is fed with something else? As a fraction."""
    layers = [number for number, layer in enumerate(lending.child.layers) if layer.kind not in ENDS]
    fed = [n for n in layers if n in lending.partner and not _fed_alike(lending, n, lending.child.layers[n])]
    return len(fed) / max(1, len(layers))


def _flow(lending: Lending, child_number: int, child_layer: Layer) -> Iterable[str]:
    """Doubts about a paired layer: another kind, other attributes, or fed with something else."""
    parent_layer = lending.parent.layers[lending.partner[child_number]]
    where = f"{child_layer.kind} {child_layer.name}"
    if child_layer.kind != parent_layer.kind:
        yield f"{where} is a {parent_layer.kind} in the parent"
    differences = _differences(lending, child_number, child_layer, parent_layer)
    if differences:
        yield f"{where} has other attributes than in the parent: {', '.join(differences)}"
    if not _fed_alike(lending, child_number, child_layer):
        yield f"{where} is fed differently"
    elif _turned_around(lending, child_number, child_layer):
        yield f"{where} has its parts in another order than in the parent"


def _fed_alike(lending: Lending, child_number: int, child_layer: Layer) -> bool:
    """Is a layer of the child fed by the partners of what feeds its partner, over the same operations?"""
    child_inputs, parent_inputs = _fed_by(lending, child_number, child_layer)
    if child_layer.kind in COMMUTATIVE:
        return sorted(child_inputs, key=repr) == sorted(parent_inputs, key=repr)
    return child_inputs == parent_inputs


def _fed_by(lending: Lending, child_number: int, child_layer: Layer) -> tuple[list[Fed], list[Fed]]:
    """What feeds a layer of the child, told in layers of the parent, and what feeds its partner."""
    parent_layer = lending.parent.layers[lending.partner[child_number]]
    child_inputs: list[Fed] = [
        (lending.partner.get(source), via) for source, via in map(lending.depth.stream, child_layer.inputs)
    ]
    parent_inputs: list[Fed] = [
        (lending.merges.gone.get(edge.source, edge.source), edge.via) for edge in parent_layer.inputs
    ]
    if child_layer.kind == CONCAT and len(child_inputs) > len(parent_inputs):
        child_inputs = [child_input for child_input in child_inputs if child_input in parent_inputs]
    return child_inputs, parent_inputs


def _turned_around(lending: Lending, child_number: int, child_layer: Layer) -> bool:
    """Are the parts of a concatenation in another order, and do weights behind it not see to that?

    They do if they have a part of an axis for each, of spaces that all differ: it is lent to by its partner.
    """
    child_inputs, parent_inputs = _fed_by(lending, child_number, child_layer)
    if child_layer.kind != CONCAT or child_inputs == parent_inputs:
        return False
    layers, seen, ahead = lending.child.layers, set[int](), list(lending.child.takers[child_number])
    while ahead:
        number = ahead.pop()
        if number in seen:
            continue
        seen.add(number)
        if layers[number].kind == OUTPUT or (layers[number].tensors and not _told_apart(layers[number])):
            return True
        if not layers[number].tensors:
            ahead += lending.child.takers[number]
    return False


def _told_apart(layer: Layer) -> bool:
    """Does a layer read a concatenation of parts by spaces that all differ?"""
    axes = [axis for tensor in layer.tensors for axis in tensor.axes]
    read = [axis.of for axis in axes if axis.role == "in"] or [axis.of for axis in axes]  # a norm has none
    spaces = [[leaf.space for leaf in leaves(of) if isinstance(leaf, Atom)] for of in read]
    return all(isinstance(of, Concat) for of in read) and all(len(set(each)) == len(each) for each in spaces)


def _differences(
    lending: Lending, child_number: int, child_layer: Layer, parent_layer: Layer
) -> Iterable[str]:
    """The attributes that differ, and that nothing takes care of, in words."""
    if child_layer.kind == parent_layer.kind and child_layer.attributes == parent_layer.attributes:
        return []
    taken_care_of = set()
    if child_layer.kind in WINDOWED:
        taken_care_of.add("groups")  # the spaces do
        if lending.grows_with_padding(child_number):
            taken_care_of.add("padding")
    if child_number in lending.epsilons.exact:
        taken_care_of.add("eps")
    usual = {"eps": USUAL_EPSILON[child_layer.kind]} if child_layer.kind in USUAL_EPSILON else {}
    attributes = usual | parent_layer.attributes, usual | child_layer.attributes
    keys = sorted({*attributes[0], *attributes[1]} - taken_care_of)
    values = [(key, *(_written(values.get(key)) for values in attributes)) for key in keys]
    return [f"{key} {old} became {new}" for key, old, new in values if old != new]


def _written(value: object) -> str:
    """An attribute as people read it."""
    if isinstance(value, tuple):
        return "x".join(map(str, value))
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _statistics(lending: Lending) -> Iterable[str]:
    """Doubts about statistics: spaces over which one is taken together must grow by the same multiple."""
    for name, pair in lending.pairs.items():
        go_on()
        for child_axis, _ in pair.axis_pairs():
            if isinstance(child_axis.of, Atom | Fixed):  # of one part
                continue
            ratios: set[Fraction | None] = set()  # None: the parent has no unit to copy
            for child_space in spaces_of(child_axis.of):
                parent_space = lending.partners.of(child_space)
                if lending.child.spaces[child_space].averaged and parent_space is not None:
                    parent_size = lending.parent.spaces[parent_space].size
                    child_size = lending.child.spaces[child_space].size
                    ratios.add(Fraction(child_size, parent_size) if parent_size else None)
            if len(ratios) > 1:
                yield f"{name} has parts that a statistic is taken over, and they grow differently"


def _approximations(lending: Lending) -> Iterable[str]:
    """Doubts about what a front end left out of one of the graphs, such as a mask, and not of the other."""
    left_out = [
        Counter(note.text for note in graph.notes if note.topic == "approximate")
        for graph in (lending.parent, lending.child)
    ]
    for text in (left_out[0] - left_out[1]) + (left_out[1] - left_out[0]):
        yield f"approximate: {text}"
    if lending.parent.framework == lending.child.framework:  # frameworks write the same in different ways
        constants = [
            {digest for note in graph.notes if note.topic == CONSTANTS for digest in note.text.split()}
            for graph in (lending.parent, lending.child)
        ]
        if constants[0] != constants[1]:
            yield "constants in the models' code (masks, positions, scales) differ"


def _order(lending: Lending) -> Iterable[str]:
    """Doubts about models of several inputs or outputs: do they come in the same order?"""
    for kind in (INPUT, OUTPUT):
        numbers = [
            [number for number, layer in enumerate(graph.layers) if layer.kind == kind]
            for graph in (lending.parent, lending.child)
        ]
        if [lending.partner.get(number) for number in numbers[1]] != numbers[0]:
            yield f"the {kind}s are not the parent's in the parent's order"


def _shares(lending: Lending, entries: Iterable[Entry]) -> Iterable[str]:
    """Doubts about copies: the notes on graphs in which no placement of shares is exact."""
    if any(entry.action in ("widened", "resized") for entry in entries):
        for graph in (lending.parent, lending.child):
            for note in graph.notes:
                if note.topic in ("conflict", "opaque"):
                    yield f"{note.topic} in {note.where}"
