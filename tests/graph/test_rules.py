"""A graph that breaks its own rules cannot be built, and the error says which rule."""

import pytest

from modelkeeper.errors import InvalidGraph
from modelkeeper.graph import (
    Atom,
    Axis,
    Concat,
    Edge,
    Expression,
    Fixed,
    Graph,
    Layer,
    Note,
    Product,
    Space,
    Tensor,
)
from modelkeeper.graph.structure import Attribute

ATOM = Atom(0, 4)


def owning(*tensors: Tensor, spaces: tuple[Space, ...] = (Space(4),)) -> Graph:
    return Graph("torch", (Layer("fc", "linear", (), tensors),), spaces)


def having(attribute: Attribute) -> Graph:
    return Graph("torch", (Layer("fc", "linear", attributes={"n": attribute}),))


def weight(of: Expression = ATOM, role: str = "out", degrees: tuple[tuple[int, int], ...] = ()) -> Tensor:
    return Tensor("fc.weight", "weight", "float32", (Axis(role, of, degrees),))


def nested(depth: int) -> Expression:
    """Products and concatenations in turn."""
    of: Expression = ATOM
    for level in range(depth):
        of = (Product, Concat)[level % 2]((of, Fixed(1, "")))  # type: ignore[arg-type]
    return of


BROKEN = {
    "layer 1 ('b'): takes input from layer 1, not an earlier one": lambda: Graph(
        "torch", (Layer("a", "input"), Layer("b", "linear", (Edge(1),)))
    ),
    "layer 0 ('a'): takes input from layer -1": lambda: Graph("torch", (Layer("a", "linear", (Edge(-1),)),)),
    "layer 0 ('a'): a text of 0 characters": lambda: Graph("torch", (Layer("a", ""),)),
    "framework: a text of 1,001 characters": lambda: Graph("t" * 1001, ()),
    "note 0: a text of 2,000 characters": lambda: Graph("torch", (), notes=(Note("dead", "", "x" * 2000),)),
    "'\\ud800' holds half a surrogate pair": lambda: Graph("torch", (Layer("\ud800", "input"),)),
    "space 0: its size is -1": lambda: owning(spaces=(Space(-1),)),
    "refers to space 1 of 1": lambda: owning(weight(Atom(1, 4))),
    "gives space 0 another size (5)": lambda: owning(weight(Atom(0, 5))),
    "a fixed axis of size -2": lambda: owning(weight(Fixed(-2, ""))),
    "a composite axis of fewer than two parts": lambda: owning(weight(Product((ATOM,)))),
    "a composite axis that is not flat": lambda: owning(weight(Concat((ATOM, Concat((ATOM, ATOM)))))),  # type: ignore[arg-type]
    "an axis expression nested deeper than 32": lambda: owning(weight(nested(40))),
    "an axis longer than any machine holds": lambda: owning(weight(Product((Fixed(2**40, ""),) * 99_999))),
    "unknown axis role 'up'": lambda: owning(weight(role="up")),
    "a degree for space 3, which the axis does not hold": lambda: owning(weight(degrees=((3, 1),))),
    "space 0 has degree 1001": lambda: owning(weight(degrees=((0, 1001),))),
    "unknown dtype 'float33'": lambda: owning(Tensor("w", "weight", "float33", ())),
    "17 axes; at most 16": lambda: owning(Tensor("w", "weight", "float32", (Axis("out", ATOM),) * 17)),
    "more elements than any machine holds": lambda: owning(
        Tensor("w", "weight", "float32", (Axis("kernel", Fixed(2**30, "")),) * 2)
    ),
    "a dot may not come first": lambda: owning(Tensor(".w", "weight", "float32", ())),
    "tensor 'fc.weight': it was described differently before": lambda: owning(weight(), weight(Fixed(4, ""))),
    "attribute 'n': its value is nan": lambda: having(float("nan")),
    "attribute 'n': its value is 9223372036854775808": lambda: having(2**63),
    "attribute 'n': True among its numbers is no integer": lambda: having((True,)),
    "attribute 'n': too long": lambda: having((1,) * 17),
}


@pytest.mark.parametrize("problem", BROKEN)
def test_a_broken_graph_cannot_be_built(problem: str) -> None:
    with pytest.raises(InvalidGraph) as raised:
        BROKEN[problem]()
    assert problem in str(raised.value)
