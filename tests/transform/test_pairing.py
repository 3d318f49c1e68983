"""Which tensors, axes and spaces of two aligned layers belong together?"""

import pytest

from modelkeeper.graph import Atom, Axis, Concat, Fixed, Layer, Product, Tensor
from modelkeeper.graph.vocabulary import PARAMETER
from modelkeeper.transform.pairing import Partners, TensorPair, pair_axes, pair_tensors, pieces, spaces_of

A, B, C, D = (Atom(space, 4) for space in range(4))


def tensor(role: str, *axes: Axis, live: bool = True, stored: bool = True) -> Tensor:
    return Tensor(role, role, "float32", axes, live=live, stored=stored)


def kernel(size: int) -> Axis:
    return Axis("kernel", Fixed(size, "kernel"))


def partners(*pairs: tuple[Tensor, Tensor]) -> Partners:
    """Of pairs (child's, parent's)."""
    made = {}
    for number, (child, parent) in enumerate(pairs):
        axes = pair_axes(parent, child)
        assert axes is not None
        made[str(number)] = TensorPair(child, parent, axes)
    return Partners(made)


def test_axes_pair_by_role_wherever_they_stand() -> None:
    parent = tensor("weight", Axis("in", A), Axis("out", B), kernel(3))
    child = tensor("weight", Axis("out", C), kernel(5), Axis("in", D))
    assert pair_axes(parent, child) == (1, 2, 0)
    pair = TensorPair(child, parent, (1, 2, 0))
    assert [parent_axis.role for _, parent_axis in pair.axis_pairs()] == ["out", "kernel", "in"]
    assert list(pair.parent_axes()) == [1, 2, 0]


def test_kernels_of_size_one_may_be_missing_on_either_side() -> None:
    linear = tensor("weight", Axis("out", A), Axis("in", B))
    pointwise = tensor("weight", Axis("out", A), Axis("in", B), kernel(1), kernel(1))
    wide = tensor("weight", Axis("out", A), Axis("in", B), kernel(3))
    assert pair_axes(linear, pointwise) == (0, 1, None, None)
    assert pair_axes(pointwise, linear) == (0, 1)
    assert pair_axes(linear, wide) is None
    assert pair_axes(wide, linear) is None
    assert pair_axes(tensor("bias", Axis("out", A)), linear) is None


def test_tensors_pair_by_role_and_each_lends_once() -> None:
    out, row = Axis("out", A), Axis("row", A)
    parent = Layer("a", "linear", (), (tensor("weight", out), tensor("bias", out), tensor("gain", row)))
    child = Layer("b", "linear", (), (tensor("bias", out), tensor("weight", out), tensor("gain", out)))
    assert {name: pair.parent.role for name, pair in pair_tensors(parent, child).items()} == {
        "bias": "bias",
        "weight": "weight",
    }, "a gain of rows is no gain of outputs"
    two = Layer("c", "linear", (), (Tensor("w1", "weight", "float32", (out,)), tensor("weight", out)))
    assert list(pair_tensors(parent, two)) == ["w1"]


def test_what_is_not_stored_lends_nothing_and_what_is_not_used_only_to_its_like() -> None:
    small, large = Axis("out", Fixed(4, "")), Axis("out", Fixed(8, ""))
    for parent, expected in (
        (tensor("weight", small, stored=False), []),
        (tensor("weight", small, live=False), ["weight"]),
        (tensor("weight", large, live=False), []),
        (tensor("weight", large), ["weight"]),
    ):
        tensor_pairs = pair_tensors(
            Layer("a", "linear", (), (parent,)), Layer("b", "linear", (), (tensor("weight", small),))
        )
        assert list(tensor_pairs) == expected


def test_the_space_that_most_parameters_speak_for_is_the_partner_and_nothing_is_certain() -> None:
    large, small = Axis("kernel", Fixed(100, "")), Axis("kernel", Fixed(2, ""))
    votes = partners(
        (tensor("weight", Axis("out", C), large), tensor("weight", Axis("out", A), large)),
        (tensor("weight", Axis("out", C), small), tensor("weight", Axis("out", B), small)),
        (tensor("bias", Axis("out", D)), tensor("bias", Axis("out", B))),
    )
    assert (votes.of(C.space), votes.certain(C.space)) == (A.space, False)
    assert (votes.of(D.space), votes.certain(D.space)) == (B.space, True)
    assert (votes.of(9), votes.certain(9)) == (None, True)


def test_a_space_that_nobody_knows_inherits_once() -> None:
    known = partners((tensor("bias", Axis("out", C)), tensor("bias", Axis("out", A))))
    known.inherit(C.space, 7)
    known.inherit(D.space, 7)
    known.inherit(D.space, 8)
    assert (known.of(C.space), known.of(D.space)) == (A.space, 7)


def test_parts_of_a_concatenation_go_to_their_partners_not_to_their_places() -> None:
    crossed = partners(
        (tensor("a", Axis("out", A)), tensor("a", Axis("out", D))),
        (tensor("b", Axis("out", B)), tensor("b", Axis("out", C))),
        (tensor("w", Axis("in", Concat((A, B)))), tensor("w", Axis("in", Concat((C, D))))),
    )
    assert crossed.concatenated((A, B), (C, D)) == [1, 0]
    assert crossed.concatenated((A, B), (D,)) == [0, None]
    assert list(crossed.atoms(Concat((A, B)), Concat((C, D)))) == [(A.space, D.space), (B.space, C.space)]
    assert all(crossed.certain(space.space) for space in (A, B))


def test_parts_without_a_partner_go_by_place_if_there_are_as_many() -> None:
    nobody = partners()
    assert nobody.concatenated((A, B), (C, D)) == [0, 1]
    assert nobody.concatenated((A, B), (C,)) == [None, None]


def test_expressions_are_taken_apart_as_long_as_they_have_the_same_form() -> None:
    nobody = partners()
    flat = Product((A, Fixed(9, "pixels")))
    assert list(nobody.parts(flat, Product((C, Fixed(4, "pixels"))))) == [
        (A, C),
        (Fixed(9, "pixels"), Fixed(4, "pixels")),
    ]
    assert list(nobody.parts(flat, C)) == [(flat, C)]
    assert list(nobody.atoms(flat, C)) == []


def test_pieces_and_spaces() -> None:
    both = Concat((A, Product((B, Fixed(3, "")))))
    assert pieces(both) == (A, Product((B, Fixed(3, ""))))
    assert pieces(A) == (A,)
    assert spaces_of(both) == [A.space, B.space]


@pytest.mark.parametrize(
    ("parent", "child", "paired"),
    [
        ((PARAMETER, "here"), (PARAMETER, "there"), True),
        ((PARAMETER, "here", "again"), (PARAMETER, "there"), False),
        ((PARAMETER, "here"), (PARAMETER, "there", "again"), False),
        ((PARAMETER, "here", "two"), (PARAMETER, "there", "too"), False),
        ((PARAMETER, "here"), ("linear", "there"), False),
        (("linear", "here"), (PARAMETER, "there"), False),
        (("linear", "here"), ("linear", "there"), False),
        (("scale", "here"), ("scale", "there"), False),
        (("linear", "here"), (PARAMETER, "here"), True),
    ],
)
def test_a_bare_parameter_is_paired_whatever_it_is_called(
    parent: tuple[str, ...], child: tuple[str, ...], paired: bool
) -> None:
    parent_layer, child_layer = (
        Layer("a", kind, (), tuple(tensor(name, Axis("other", Fixed(3, ""))) for name in names))
        for kind, *names in (parent, child)
    )
    assert bool(pair_tensors(parent_layer, child_layer)) == paired


def test_what_the_child_does_not_use_takes_from_its_like_alone() -> None:
    small, large = (tensor("weight", Axis("out", Fixed(size, ""))) for size in (4, 8))
    unused = tensor("weight", Axis("out", Fixed(4, "")), live=False)
    for parent, paired in ((small, True), (large, False)):
        layers = Layer("a", "linear", (), (parent,)), Layer("b", "linear", (), (unused,))
        assert bool(pair_tensors(*layers)) == paired


def test_votes_add_up_and_of_equals_the_first_space_wins() -> None:
    def vote(parent: Atom, size: int, number: int) -> tuple[Tensor, Tensor]:
        made = [
            tensor(f"w{number}", Axis("out", each), Axis("kernel", Fixed(size, ""))) for each in (C, parent)
        ]
        return made[0], made[1]

    assert partners(vote(A, 2, 0), vote(B, 3, 1)).of(C.space) == B.space
    assert partners(vote(B, 3, 0), vote(A, 2, 1)).of(C.space) == B.space
    assert partners(vote(A, 2, 0), vote(B, 3, 1), vote(A, 2, 2)).of(C.space) == A.space
    assert partners(vote(B, 3, 0), vote(A, 3, 1)).of(C.space) == A.space
    assert partners(vote(B, 0, 0), vote(A, 0, 1), vote(B, 0, 2)).of(C.space) == B.space, (
        "empty ones count as one"
    )


def test_a_space_that_was_inherited_was_not_voted_for() -> None:
    known = partners((tensor("bias", Axis("out", C)), tensor("bias", Axis("out", A))))
    known.inherit(D.space, 7)
    known.inherit(C.space, 7)
    assert (known.voted(C.space), known.voted(D.space), known.voted(9)) == (A.space, None, None)
    assert known.certain(D.space)


def test_each_part_of_a_concatenation_goes_to_one_part() -> None:
    same = partners((tensor("a", Axis("out", A)), tensor("a", Axis("out", C))))
    assert same.concatenated((A, A), (C,)) == [0, None]
    assert same.concatenated((A, A), (C, C)) == [0, 1]
    assert same.concatenated((A, A, A), (C, D, C)) == [0, 2, None]
    assert same.concatenated((A, B), (D, C)) == [1, None], "the place of the other is taken"
    assert same.concatenated((A, B), (C, D)) == [0, 1]
    assert same.concatenated((A, B), (C, D, D)) == [0, None], "not as many"
    assert same.concatenated((A, A), (D, D)) == [None, None], "who has a partner does not go by place"
    fixed = Fixed(2, "")
    assert same.concatenated((fixed, A), (C, fixed)) == [0, None], "a fixed part goes by place, and is first"
    assert same.concatenated((A, fixed), (C, fixed)) == [0, 1]
    assert same.concatenated((Product((A, fixed)), B), (D, Product((C, fixed)))) == [1, None]
    assert same.concatenated((Product((A, B)),), (C,)) == [None], "all of its spaces must be there"


def test_parts_that_have_no_counterpart_stand_alone() -> None:
    known = partners((tensor("a", Axis("out", A)), tensor("a", Axis("out", C))))
    assert list(known.parts(Concat((B, A)), C)) == [(B, None), (A, C)]
    assert list(known.parts(A, None)) == [(A, None)]
    whole = Concat((A, Product((B, Fixed(2, "")))))
    assert list(known.parts(whole, Fixed(9, ""))) == [(whole, Fixed(9, ""))]
    three = Product((A, Fixed(2, ""), Fixed(3, "")))
    assert list(known.parts(three, Product((C, Fixed(6, ""))))) == [(three, Product((C, Fixed(6, ""))))]


def test_axes_of_one_role_pair_in_their_order() -> None:
    parent = tensor("weight", Axis("in", A), kernel(3), kernel(5), Axis("out", B))
    child = tensor("weight", Axis("out", C), Axis("in", D), kernel(7), kernel(9))
    assert pair_axes(parent, child) == (3, 0, 1, 2)
    flat = tensor("weight", Axis("out", C), Axis("in", D), kernel(1))
    assert pair_axes(parent, flat) is None, "one of its kernels is larger than one"
    assert pair_axes(tensor("w", Axis("in", A), Axis("out", B)), tensor("w", Axis("out", C))) is None
    assert pair_axes(tensor("w", Axis("in", A), kernel(0)), tensor("w", Axis("in", C))) is None
    assert pair_axes(tensor("w", Axis("row", A)), tensor("w", Axis("out", C))) is None
    pair = TensorPair(child, parent, (3, 0, 1, 2))
    assert [axis.size for _, axis in pair.axis_pairs()] == [4, 4, 3, 5]
    missing = TensorPair(flat, tensor("w", Axis("in", A), Axis("out", B)), (1, 0, None))
    assert [axis.of for _, axis in missing.axis_pairs()] == [B, A]
    assert list(missing.parent_axes()) == [1, 0]
