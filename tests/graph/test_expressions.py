"""Expressions over spaces: their size, their leaves, how they are written."""

from modelkeeper.graph import (
    Atom,
    Concat,
    Fixed,
    Product,
    leaves,
)

ATOM = Atom(0, 4)


def test_expressions_know_their_size_and_how_to_print() -> None:
    of = Product((Concat((ATOM, Atom(1, 2))), Fixed(9, "window")))
    assert of.size == 54
    assert str(of) == "(s0+s1)x9"
    assert list(leaves(of)) == [ATOM, Atom(1, 2), Fixed(9, "window")]
    assert str(Concat((ATOM, Product((ATOM, Atom(1, 2)))))) == "s0+s0xs1"
