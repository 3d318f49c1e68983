"""Which tensors, axes and spaces of two aligned layers belong together?"""

from modelkeeper.graph import Atom, Axis, Concat, Fixed, Layer, Product, Tensor
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
