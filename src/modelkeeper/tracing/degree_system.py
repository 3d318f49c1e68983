"""Which degrees satisfy all that is said of them? A linear system over the axes of values.

An unknown is the degree of every space on one axis; axes that are known to be equal are one unknown. An
equation holds for each space that its axes have in common. Known degrees propagate; what stays open is set to
0, value by value. Where an equation cannot hold, the spaces concerned are kept in `conflicts`.
"""

from collections import deque
from collections.abc import Iterable, Iterator

from modelkeeper.tracing.terms import Solver, Straddles, Term
from modelkeeper.tracing.trace import Value

Key = tuple[int, int]  # a value's number and an axis
Degree = dict[int, int]  # of each atom, by its number


class _Unknown:
    """The degrees of one class of axes that are known to be equal."""

    __slots__ = ("atoms", "equations", "known", "parent")

    def __init__(self, atoms: frozenset[int]) -> None:
        self.atoms = atoms
        self.parent: _Unknown | None = None
        self.known: Degree = {}
        self.equations: list[_Equation] = []


class _Equation:
    """Σ sign · degree = total, for each of some atoms."""

    __slots__ = ("atoms", "terms", "total", "where")

    def __init__(
        self, terms: list[tuple[_Unknown, int]], total: int, atoms: frozenset[int], where: str
    ) -> None:
        self.terms, self.total, self.atoms, self.where = terms, total, atoms, where


class System:
    """Collects what is said of degrees, and solves it."""

    def __init__(self, solver: Solver) -> None:
        self.where = ""
        self.conflicts: dict[str, set[Term]] = {}  # where -> the spaces it is about
        self._solver = solver
        self._terms: dict[int, Term] = {}  # atoms by number
        self._unknowns: dict[Key, _Unknown | None] = {}
        self._atoms: dict[int, frozenset[int]] = {}
        self._equations: list[_Equation] = []
        self._facts: list[tuple[_Unknown, int, frozenset[int], str]] = []

    # -- saying ---------------------------------------------------------------------------------

    def zero(self, value: Value, axes: Iterable[int] | None = None) -> None:
        for axis in range(len(value.axes)) if axes is None else axes:
            self._fact(value, axis, 0)

    def one(self, value: Value, axis: int) -> None:
        self._fact(value, axis, 1)

    def same(self, a: Value, axis_a: int, b: Value, axis_b: int) -> None:
        first, second = self._unknown(a, axis_a), self._unknown(b, axis_b)
        if first is None or second is None or first is second:
            return
        if first.atoms == second.atoms:
            second.parent = first
        else:
            self._add([(first, 1), (second, -1)], 0, first.atoms & second.atoms)

    def fresh(self, out: Value, axis: int, sources: Iterable[Value]) -> None:
        """Degree 0 for spaces on an axis of `out` that no source has: one number for all their units."""
        unknown = self._unknown(out, axis)
        if unknown is not None:
            known = {atom for value in sources for term in value.axes for atom in self._spaces(term)}
            new = unknown.atoms - known
            if new:
                self._facts.append((unknown, 0, new, self.where))

    def contract(self, x: Value, axis_x: int, w: Value, axis_w: int) -> None:
        first, second = self._unknown(x, axis_x), self._unknown(w, axis_w)
        if first is not None and second is not None:
            self._add([(first, 1), (second, 1)], 1, first.atoms & second.atoms)

    def contract_in_groups(self, x: Value, axis_x: int, w: Value, axis_w: int, groups: int) -> None:
        """Contract in groups: each is summed up for itself, only what is inside a group is contracted."""
        first, second = self._unknown(x, axis_x), self._unknown(w, axis_w)
        if first is None or second is None:
            return
        try:
            inner = self._spaces(self._solver.factor(x.axes[axis_x], groups, self.where)[1])
        except Straddles:  # then they are pinned
            return
        self._add([(first, 1), (second, 1)], 1, first.atoms & second.atoms & inner)
        whole = (first.atoms & second.atoms) - inner
        if whole:
            self._facts.append((second, 0, whole, self.where))

    def product(self, out: Value, factors: list[tuple[Value, int]], axis: int) -> None:
        made = self._unknown(out, axis)
        if made is None:
            return
        terms = [(made, 1)]
        for value, sign in factors:
            if len(value.axes) >= -axis and value.shape[axis] != 1:
                unknown = self._unknown(value, axis)
                if unknown is not None:
                    terms.append((unknown, -sign))
        if len(terms) == 2 and terms[1][1] == -1 and terms[1][0].atoms == made.atoms:
            if terms[1][0] is not made:
                terms[1][0].parent = made
        else:
            self._add(terms, 0, made.atoms)

    # -- solving --------------------------------------------------------------------------------

    def solve(self, order: Iterable[Value]) -> None:
        """Propagate what is known; set what stays open to 0, in the order of the values."""
        queue: deque[_Equation] = deque()
        for unknown, degree, atoms, where in self._facts:
            self._learn(_root(unknown), dict.fromkeys(atoms, degree), where, queue)
        for equation in self._equations:
            for unknown, _ in equation.terms:
                _root(unknown).equations.append(equation)
        queue.extend(self._equations)
        self._run(queue)
        for root in self._roots(order):
            missing = root.atoms - root.known.keys()
            if missing:
                self._learn(root, dict.fromkeys(missing, 0), "", queue)
                self._run(queue)

    def degree(self, value: Value, axis: int) -> Degree:
        unknown = self._unknown(value, axis)
        return {} if unknown is None else unknown.known

    def _roots(self, order: Iterable[Value]) -> Iterator[_Unknown]:
        for value in order:
            for axis in range(len(value.axes)):
                unknown = self._unknown(value, axis)
                if unknown is not None:
                    yield unknown

    def _run(self, queue: deque[_Equation]) -> None:
        while queue:
            self._apply(queue.popleft(), queue)

    def _apply(self, equation: _Equation, queue: deque[_Equation]) -> None:
        signs: dict[int, tuple[_Unknown, int]] = {}
        for unknown, sign in equation.terms:  # axes may have been found equal since
            root = _root(unknown)
            signs[id(root)] = (root, signs.get(id(root), (root, 0))[1] + sign)
        terms = [(root, sign) for root, sign in signs.values() if sign]
        solved: dict[int, tuple[_Unknown, Degree]] = {}
        for atom in equation.atoms:
            left, open_term, count = equation.total, None, 0
            for root, sign in terms:
                degree = root.known.get(atom)
                if degree is not None:
                    left -= sign * degree
                elif atom in root.atoms:
                    open_term, count = (root, sign), count + 1
            if count == 0 and left:
                self._contradict(equation.where, atom)
            elif count == 1 and open_term is not None:
                root, sign = open_term
                if left % sign == 0:
                    solved.setdefault(id(root), (root, {}))[1][atom] = left // sign
        for root, degrees in solved.values():
            self._learn(root, degrees, equation.where, queue)

    def _learn(self, root: _Unknown, degrees: Degree, where: str, queue: deque[_Equation]) -> None:
        news = False
        for atom, degree in degrees.items():
            known = root.known.setdefault(atom, degree)
            if known != degree:
                self._contradict(where, atom)
            elif not news:
                news = True
        if news:
            queue.extend(root.equations)

    def _contradict(self, where: str, atom: int) -> None:
        if not self._terms[atom].pins:  # a pinned space has no copies, and so no shares
            self.conflicts.setdefault(where, set()).add(self._terms[atom])

    # -- unknowns -------------------------------------------------------------------------------

    def _fact(self, value: Value, axis: int, degree: int) -> None:
        unknown = self._unknown(value, axis)
        if unknown is not None:
            self._facts.append((unknown, degree, unknown.atoms, self.where))

    def _add(self, terms: list[tuple[_Unknown, int]], total: int, atoms: frozenset[int]) -> None:
        if atoms:
            self._equations.append(_Equation(terms, total, atoms, self.where))

    def _unknown(self, value: Value, axis: int) -> _Unknown | None:
        """The class of an axis; None for one without spaces."""
        if axis < 0:
            axis += len(value.axes)
        key = (value.number, axis)
        if key not in self._unknowns:
            atoms = self._spaces(value.axes[axis])
            self._unknowns[key] = _Unknown(atoms) if atoms else None
        unknown = self._unknowns[key]
        return _root(unknown) if unknown is not None else None

    def _spaces(self, term: Term) -> frozenset[int]:
        term = self._solver.resolve(term)
        known = self._atoms.get(term.number)
        if known is None:
            atoms = self._solver.atoms(term)
            self._terms.update((atom.number, atom) for atom in atoms)
            known = self._atoms[term.number] = frozenset(atom.number for atom in atoms)
        return known


def _root(unknown: _Unknown) -> _Unknown:
    while unknown.parent is not None:
        if unknown.parent.parent is not None:
            unknown.parent = unknown.parent.parent
        unknown = unknown.parent
    return unknown
