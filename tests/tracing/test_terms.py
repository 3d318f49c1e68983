"""Unification of axis terms: what is found equal stays so, sizes never change, nothing hangs."""

from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.graph import Pin
from modelkeeper.tracing.terms import ATOM, CONCAT, FIXED, PRODUCT, Solver, Term

WHERE = "here"
sizes = st.sampled_from([2, 3, 4, 6, 8, 12, 24])


@st.composite
def terms(draw: st.DrawFn, solver: Solver, size: int, depth: int = 2) -> Term:
    """Any term of a size: atoms, fixed sizes, products and concatenations of smaller ones."""
    kind = draw(
        st.sampled_from(["atom", "fixed", "product", "concat"] if depth and size > 3 else ["atom", "fixed"])
    )
    if kind == "product":
        lead = draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0]))
        return solver.product(
            [draw(terms(solver, lead, depth - 1)), draw(terms(solver, size // lead, depth - 1))]
        )
    if kind == "concat":
        cut = draw(st.integers(1, size - 1))
        return solver.concat(
            [draw(terms(solver, cut, depth - 1)), draw(terms(solver, size - cut, depth - 1))]
        )
    return solver.atom(size) if kind == "atom" else solver.fixed(size, "given")


def layout(solver: Solver, term: Term) -> list[frozenset[tuple[int, int]]]:
    """For each unit of an axis, the units of spaces that it stands for. Twice a is a and a again."""
    term = solver.resolve(term)
    if term.kind == ATOM:
        return [frozenset([(term.number, unit)]) for unit in range(term.size)]
    if term.kind == FIXED:
        return [frozenset()] * term.size
    parts = [layout(solver, part) for part in term.parts]
    if term.kind == CONCAT:
        return [unit for part in parts for unit in part]
    units: list[frozenset[tuple[int, int]]] = [frozenset()]
    for part in parts:
        units = [left | right for left in units for right in part]
    return units


def pinned(solver: Solver, term: Term) -> bool:
    return any(atom.pins for atom in solver.atoms(term))


@given(st.data(), sizes)
def test_unified_terms_are_equal_or_pinned(data: st.DataObject, size: int) -> None:
    solver = Solver()
    a, b = data.draw(terms(solver, size)), data.draw(terms(solver, size))
    solver.unify(a, b, WHERE)
    assert solver.resolve(a).size == solver.resolve(b).size == size
    assert layout(solver, a) == layout(solver, b) or pinned(solver, a) or pinned(solver, b)


@given(st.data(), sizes)
def test_a_normal_form_is_flat(data: st.DataObject, size: int) -> None:
    solver = Solver()
    a, b = data.draw(terms(solver, size, 3)), data.draw(terms(solver, size, 3))
    solver.unify(a, b, WHERE)
    todo = [solver.resolve(a), solver.resolve(b)]
    while todo:
        term = todo.pop()
        if term.kind in (PRODUCT, CONCAT):
            parts = [solver.resolve(part) for part in term.parts]
            assert len(parts) > 1
            assert all(part.kind != term.kind for part in parts)
            todo += parts


@given(st.data(), sizes, st.integers(0, 24))
def test_a_split_gives_back_its_halves(data: st.DataObject, size: int, cut: int) -> None:
    solver = Solver()
    term, cut = data.draw(terms(solver, size)), min(cut, size)
    left, right = solver.split(term, cut, WHERE)
    assert (left.size, right.size) == (cut, size - cut)
    if not pinned(solver, term):
        assert layout(solver, solver.concat([left, right])) == layout(solver, term)


@given(st.data(), sizes)
def test_a_reshape_there_and_back_is_the_same(data: st.DataObject, size: int) -> None:
    solver = Solver()
    term = data.draw(terms(solver, size))
    lead = data.draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0]))
    shape = [lead, size // lead]
    [back] = solver.reshape(solver.reshape([term], shape, WHERE), [size], WHERE)
    assert back.size == size
    if not pinned(solver, term):
        assert layout(solver, back) == layout(solver, term)


def test_a_pin_follows_what_is_found_equal() -> None:
    solver = Solver()
    a, b = solver.atom(6), solver.atom(6)
    solver.pin(a, Pin("output"))
    solver.average(a)
    solver.unify(a, b, WHERE)
    solver.factor(b, 2, WHERE)
    assert [atom.pins for atom in solver.atoms(a)] == [(Pin("output"),)] * 2
    assert all(atom.averaged for atom in solver.atoms(b))


def test_what_does_not_fit_stays_apart_with_a_reason() -> None:
    solver = Solver()
    a = solver.product([solver.atom(4), solver.atom(6)])
    b = solver.product([solver.atom(6), solver.atom(4)])
    solver.unify(a, b, "the test")
    assert layout(solver, a) != layout(solver, b)
    reasons = {str(pin) for atom in solver.atoms(a) for pin in atom.pins}
    assert reasons == {"opaque: factors 6 and 4 do not refine in the test"}
    c = solver.atom(12)
    solver.unify(c, solver.concat([c, solver.fixed(0, "empty")]), WHERE)
    inner = solver.atom(6)
    whole = solver.concat([inner, inner])
    solver.unify(solver.product([solver.fixed(2, "two"), inner]), whole, WHERE)
    assert solver.resolve(inner).size == 6


def test_long_concatenations_do_not_recurse() -> None:
    solver = Solver()
    a = solver.concat([solver.atom(2) for _ in range(1_500)])
    b = solver.concat([solver.atom(2) for _ in range(1_500)])
    solver.unify(a, b, WHERE)
    assert layout(solver, a) == layout(solver, b)
