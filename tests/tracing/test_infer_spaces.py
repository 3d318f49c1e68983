"""Spaces and degrees of scenario networks: what is found, and that it is true of what they compute."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from benchmarks.helpers.permutation import difference, permute, randomise
from modelkeeper.frontends.torch import describe
from modelkeeper.graph import Atom, Axis, Concat, Expression, Fixed, Graph, Pin, Product, Space, leaves
from modelkeeper.graph.vocabulary import CONSTANTS
from tests.helpers.networks import (
    BLOCKS,
    SCENARIOS,
    BareParameters,
    Chain,
    Dense,
    Encoder,
    Flatten,
    Grouped,
    GroupNormed,
    Halves,
    InPlace,
    LastStates,
    Loop,
    OneBit,
    PackedAttention,
    Recurrent,
    RelativeShift,
    Residual,
    RootMeanSquare,
    SeparateAttention,
    Shuffle,
    SqueezeExcite,
    TiedLanguageModel,
    Transposed,
    WeightNormed,
    network,
)
from tests.helpers.pitfalls import PITFALLS


def axis(graph: Graph, name: str, number: int) -> Axis:
    return graph.tensors[name].axes[number]


def of(graph: Graph, name: str, number: int) -> Expression:
    return axis(graph, name, number).of


def space(graph: Graph, axis_of: Expression) -> Space:
    assert isinstance(axis_of, Atom)
    return graph.spaces[axis_of.space]


def factors(axis_of: Expression) -> tuple[Atom | Fixed | Concat, ...]:
    assert isinstance(axis_of, Product)
    return axis_of.factors


def joined(*parts: Expression) -> Concat:
    assert not any(isinstance(part, Concat) for part in parts)
    return Concat(tuple(part for part in parts if not isinstance(part, Concat)))


def graph_of(kind: type[nn.Module]) -> Graph:
    return describe(kind(), SCENARIOS[kind])


@pytest.mark.parametrize("kind", SCENARIOS, ids=lambda kind: kind.__name__)
def test_shuffling_a_free_space_changes_nothing(kind: type[nn.Module]) -> None:
    torch.manual_seed(1)
    model, inputs = kind().eval().double(), SCENARIOS[kind]
    inputs = inputs.double() if inputs.is_floating_point() else inputs
    randomise(model)
    with torch.no_grad():
        before = model(inputs)
    count = permute(model, describe(model, inputs))
    with torch.no_grad():
        after = model(inputs)
    assert count >= 1
    assert difference(before, after) < 1e-12


def test_a_chain_hands_its_units_on() -> None:
    graph = graph_of(Chain)
    assert of(graph, "0.weight", 0) == of(graph, "0.bias", 0) == of(graph, "2.weight", 1)
    assert of(graph, "2.weight", 0) == of(graph, "4.weight", 1)
    assert isinstance(of(graph, "0.weight", 1), Fixed)
    assert space(graph, of(graph, "4.weight", 0)).pins == (Pin("output"),)


def test_a_residual_add_ties_its_operands() -> None:
    graph = graph_of(Residual)
    stream = of(graph, "stem.0.weight", 0)
    assert (
        stream
        == of(graph, "outer.0.weight", 0)
        == of(graph, "inner.0.weight", 1)
        == of(graph, "head.weight", 1)
    )
    assert stream == of(graph, "outer.1.running_var", 0) != of(graph, "inner.0.weight", 0)


def test_concatenation_makes_sums() -> None:
    graph = graph_of(Dense)
    a, b, c = (of(graph, f"{name}.0.weight", 0) for name in "abc")
    assert of(graph, "c.0.weight", 1) == joined(a, b)
    assert of(graph, "norm.weight", 0) == of(graph, "head.weight", 1) == joined(a, b, c)


def test_flatten_makes_products() -> None:
    graph = graph_of(Flatten)
    assert factors(of(graph, "head.weight", 1)) == (of(graph, "conv.weight", 0), Fixed(36, "spatial"))


def test_a_gate_has_the_units_of_what_it_gates() -> None:
    graph = graph_of(SqueezeExcite)
    assert of(graph, "up.weight", 0) == of(graph, "conv.weight", 0) == of(graph, "head.weight", 1)
    assert of(graph, "down.weight", 0) == of(graph, "up.weight", 1)


def test_groups_factor_channels() -> None:
    graph = graph_of(Grouped)
    groups, inner = factors(of(graph, "a.weight", 0))
    assert (groups.size, inner.size) == (4, 3)
    assert of(graph, "b.weight", 1) == inner
    assert factors(of(graph, "b.weight", 0))[0] == groups
    assert factors(of(graph, "depthwise.weight", 0))[:2] == factors(of(graph, "b.weight", 0))


def test_a_channel_shuffle_turns_the_factors_round() -> None:
    graph = graph_of(Shuffle)
    assert of(graph, "head.weight", 1) == Product(factors(of(graph, "b.weight", 0))[::-1])
    assert any("permute" in step for layer in graph.layers for edge in layer.inputs for step in edge.via)


@pytest.mark.parametrize("name", ["groups after a shuffle", "transposed groups after a shuffle"])
def test_uneven_groups_pin_what_goes_in_but_not_what_each_makes(name: str) -> None:
    make, inputs = PITFALLS[name]
    graph = describe(make(), inputs)
    groups, made = factors(of(graph, "b.weight", 1))
    assert (groups.size, made.size) == (3, 4)
    assert space(graph, made).free
    assert not any(space(graph, factor).free for factor in factors(of(graph, "a.weight", 0)))


def test_a_chunk_splits() -> None:
    graph = graph_of(Halves)
    half = of(graph, "down.weight", 1)
    assert of(graph, "up.weight", 0) == joined(half, half)


def test_packed_and_separate_heads_are_found() -> None:
    packed = of(graph_of(PackedAttention), "qkv.weight", 0)
    three, heads, size = factors(packed)
    assert (three.size, heads.size, size.size) == (3, 3, 4)
    graph = graph_of(SeparateAttention)
    q, k, v, out = (of(graph, f"{name}.weight", 0) for name in ("q", "k", "v", "out"))
    assert q == k
    assert factors(q)[0] == factors(v)[0]
    assert of(graph, "out.weight", 1) == v
    assert space(graph, factors(q)[0]).free
    assert not space(graph, factors(q)[1]).free
    assert out == of(graph, "embed.weight", 0)


def test_the_fused_encoder_shows_its_parts() -> None:
    graph = graph_of(Encoder)
    kinds = [layer.kind for layer in graph.layers]
    assert kinds.count("linear") == 5
    assert kinds.count("attention") == 1
    assert not [note for note in graph.notes if note.topic != CONSTANTS]


def test_tied_embeddings_are_named_once_and_carry_no_share() -> None:
    graph = graph_of(TiedLanguageModel)
    users = [layer.kind for layer in graph.layers if any(t.name == "tokens.weight" for t in layer.tensors)]
    assert users == ["embedding", "linear"]
    assert "head.weight" not in graph.tensors
    embedding, head = (
        layer.tensors[0]
        for layer in graph.layers
        if layer.kind in users and layer.name in ("tokens", "tokens@2")
    )
    assert [a.role for a in embedding.axes] == ["row", "out"]
    assert [a.role for a in head.axes] == ["out", "in"]
    normed = of(graph, "norm.weight", 0)
    assert isinstance(normed, Atom)
    stream = normed.space
    assert axis(graph, "tokens.weight", 1).degrees == ()  # read by the head and made by the embedding
    assert axis(graph, "norm.weight", 0).degrees == ((stream, 1),)  # so the norm carries it
    assert axis(graph, "inner.weight", 1).degrees == ((stream, 1),)


def test_readers_carry_the_shares() -> None:
    graph = graph_of(Dense)
    for name, tensor in graph.tensors.items():
        for number, tensor_axis in enumerate(tensor.axes):
            spaces = {leaf.space for leaf in leaves(tensor_axis.of) if isinstance(leaf, Atom)}
            reads = number == 1 and name.endswith("weight") and len(tensor.axes) > 1
            assert tensor_axis.degrees == (tuple((space, 1) for space in sorted(spaces)) if reads else ())


def test_recurrent_layers_are_one_layer_with_gates() -> None:
    graph = graph_of(Recurrent)
    lstm, gru = (layer for layer in graph.layers if layer.kind in ("lstm", "gru"))
    assert (len(lstm.tensors), len(gru.tensors)) == (16, 4)
    first, hidden = factors(of(graph, "lstm.weight_ih_l0", 0))
    assert first.size == 4
    assert of(graph, "lstm.weight_hh_l0", 1) == hidden
    assert of(graph, "lstm.weight_ih_l1", 1) == joined(hidden, of(graph, "lstm.weight_hh_l0_reverse", 1))
    assert of(graph, "head.weight", 1) == of(graph, "gru.weight_hh_l0", 1)


def test_last_states_tie_the_cells_they_are_stacked_with() -> None:
    graph = graph_of(LastStates)
    hidden = of(graph, "head.weight", 1)
    assert hidden == of(graph, "lstm.weight_hh_l0", 1) == of(graph, "lstm.weight_hh_l1", 1)
    assert space(graph, hidden).free


def test_a_reshape_or_a_mask_of_other_axes_leaves_heads_free() -> None:
    graph = graph_of(RelativeShift)
    heads, _ = factors(of(graph, "q.weight", 0))
    assert space(graph, heads).free
    assert factors(of(graph, "head.weight", 1))[0] == heads


def test_a_contradiction_of_degrees_is_noted_and_pins_its_space_alone() -> None:
    graph = graph_of(OneBit)
    assert [note.topic for note in graph.notes] == ["conflict"]
    inner, after = (space(graph, of(graph, name, 1)) for name in ("b.weight", "c.weight"))
    assert "b.weight" in graph.notes[0].where
    assert inner.pins == (Pin("shares", graph.notes[0].where),)
    assert after.free


def test_positions_beyond_the_input_are_not_free() -> None:
    graph = graph_of(TiedLanguageModel)
    positions = of(graph, "positions", 1)
    assert isinstance(positions, Concat)
    used, unread = positions.parts
    assert used == Fixed(7, "input")
    assert space(graph, unread).pins == (Pin("never_read"),)


def test_statistics_are_marked() -> None:
    for kind, name in (
        (GroupNormed, "norm.weight"),
        (RootMeanSquare, "gain"),
        (TiedLanguageModel, "norm.weight"),
    ):
        graph = graph_of(kind)
        assert any(
            graph.spaces[leaf.space].averaged for leaf in leaves(of(graph, name, 0)) if isinstance(leaf, Atom)
        )


def test_a_hand_written_norm_is_a_function_on_the_path() -> None:
    graph = graph_of(RootMeanSquare)
    assert [layer.kind for layer in graph.layers] == ["input", "linear", "scale", "linear", "output"]
    assert graph.layers[2].inputs[0].via != ()


def test_writes_through_views_are_seen() -> None:
    graph = graph_of(InPlace)
    a, b = of(graph, "a.weight", 0), of(graph, "b.weight", 0)
    assert of(graph, "head.weight", 1) == joined(a, b)
    head = next(number for number, layer in enumerate(graph.layers) if layer.name == "head")
    reached, todo = set(), [head]
    while todo:
        for edge in graph.layers[todo.pop()].inputs:
            reached.add(graph.layers[edge.source].name)
            todo.append(edge.source)
    assert {"a", "b"} <= reached


def test_a_loop_unrolls_into_layers_of_the_same_tensors() -> None:
    graph = graph_of(Loop)
    uses = [layer for layer in graph.layers if any(t.name == "again.weight" for t in layer.tensors)]
    assert len(uses) == 3
    assert len({layer.name for layer in uses}) == 3
    assert len({layer.tensors for layer in uses}) == 1


def test_transposed_convolutions_have_their_axes_the_other_way_round() -> None:
    graph = graph_of(Transposed)
    up = next(layer for layer in graph.layers if layer.kind == "conv_transpose")
    assert [a.role for a in up.tensors[0].axes] == ["in", "out", "kernel", "kernel"]
    assert of(graph, "head.weight", 1) == joined(Fixed(3, "input"), of(graph, "up.bias", 0))


def test_bare_parameters_have_layers() -> None:
    graph = graph_of(BareParameters)
    kinds = {layer.kind: layer for layer in graph.layers}
    assert kinds["parameter"].tensors[0].name == "token"
    assert kinds["scale"].tensors[0].name == "gain"
    matrix = next(layer for layer in graph.layers if layer.tensors and layer.tensors[0].name == "matrix")
    assert matrix.kind == "linear"
    assert [a.role for a in matrix.tensors[0].axes] == ["in", "out"]


def test_a_parametrized_weight_belongs_to_its_layer() -> None:
    graph = graph_of(WeightNormed)
    layer = graph.layers[1]
    assert (layer.name, layer.kind) == ("a", "linear")
    assert {t.name: t.role for t in layer.tensors} == {
        "a.parametrizations.weight.original0": "factor",
        "a.parametrizations.weight.original1": "weight",
        "a.bias": "bias",
    }


def test_an_operation_without_a_rule_is_named_and_never_guessed() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(torch.fft.fft(self.a(x)).real)

    graph = describe(Odd(), SCENARIOS[Chain])
    assert any(note.topic == "opaque" and "fft" in note.text and "a" in note.where for note in graph.notes)
    assert any(pin.code == "opaque" for pin in space(graph, of(graph, "a.weight", 0)).pins)
    assert of(graph, "a.weight", 0) != of(graph, "b.weight", 1)


# -- generated networks ---------------------------------------------------------------------------


blocks = st.lists(st.tuples(st.sampled_from(BLOCKS), st.integers(2, 6)), min_size=1, max_size=5)


@given(blocks, st.integers(2, 5), st.integers(0, 3))
def test_shuffling_changes_nothing_in_generated_networks(
    kinds: list[tuple[str, int]], width: int, seed: int
) -> None:
    torch.manual_seed(seed)
    model = network(width, kinds).double().eval()
    randomise(model, seed)
    inputs = torch.randn(2, 3, 6, 6, dtype=torch.float64)
    graph = describe(model, inputs)
    shuffled = copy.deepcopy(model)
    permute(shuffled, graph, seed)
    with torch.no_grad():
        assert difference(model(inputs), shuffled(inputs)) < 1e-10
    assert not graph.notes
    assert all(space.free or space.pins == (Pin("output"),) for space in graph.spaces)
