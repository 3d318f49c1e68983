"""Where does the share of a copied unit belong?

When a unit is copied, everything that reads it must read each copy by a share, and the shares sum to
one. Which tensor carries the shares? Mostly the reader's weights, but not with tied embeddings, gates or
factored weights. It is a linear system: on every axis of every value, each space has a degree, the
power of the share that the value carries there.

    contraction       d(x) + d(w) = 1          each product of the sum carries one share in all
    multiply, divide  d(out) = d(a) ± d(b)
    add, move axes    all equal                broadcast along the axis, or a scalar added: 0
    norm              d(in) = 0, d(out) = d(gain) = d(bias)
    anything else     0 on all sides, as for the model's inputs and outputs

Unknowns are whole axes (spaces of one axis apart only where they differ). Known degrees propagate; what
stays open on activations is 0. A contradiction is reported, never guessed, and pins the spaces it is about:
no copies of their units are exact.
"""

from collections import deque
from collections.abc import Iterable, Iterator

from modelkeeper.frontends.terms import Solver, Term
from modelkeeper.frontends.torch.rules.layers import CONVOLUTIONS, RECURRENT, TRANSPOSED, operands, transposed
from modelkeeper.frontends.torch.trace import Step, Trace, Value

Key = tuple[int, int]  # a value's number and an axis
Degree = dict[int, int]  # of each atom, by its number

# Linear in the one value that they rearrange: degrees go through unchanged.
MOVES = frozenset(
    """clone detach dropout feature_dropout alpha_dropout alias lift_fresh _to_copy contiguous neg copy
        write view _unsafe_view _reshape_alias unsqueeze squeeze expand repeat permute transpose t
        numpy_T mT swapaxes cat stack split split_with_sizes unsafe_split unbind slice select index
        index_select gather roll flip constant_pad_nd pad pixel_shuffle pixel_unshuffle im2col unfold
        channel_shuffle native_channel_shuffle zeros ones empty full zeros_like new_zeros new_empty
        empty_like avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
        _adaptive_avg_pool2d adaptive_avg_pool3d upsample_bilinear2d upsample_nearest2d
        upsample_bicubic2d upsample_nearest1d upsample_linear1d triu tril""".split()
)
NORMS = frozenset(
    """batch_norm native_batch_norm instance_norm layer_norm native_layer_norm rms_norm _fused_rms_norm
        group_norm native_group_norm""".split()
)


def infer_degrees(trace: Trace, solver: Solver) -> tuple[dict[Key, Degree], list[str]]:
    """The degrees on the axes of the model's tensors, and what contradicts itself."""
    system = _System(solver)
    for value in (*trace.inputs, *trace.outputs):
        system.zero(value)
    last = "the input"
    for step in trace.steps:
        last = next((value.owner.names[0] for value in step.inputs if value.owner is not None), last)
        system.where = f"{step.name} after {last}"
        _equations(system, step)
    system.solve([value for step in trace.steps for value in step.outputs] + trace.owned)
    found = {
        (value.number, axis): system.degree(value, axis)
        for value in trace.owned
        for axis in range(len(value.axes))
    }
    conflicts: list[str] = []
    for where, atoms in system.conflicts.items():
        conflicts.append(where)
        for atom in atoms:
            solver.pin(atom, f"no placement of shares is exact in {where}")
    return found, conflicts


def _equations(system: "_System", step: Step) -> None:
    name, out, arguments = step.name, step.outputs[0], step.arguments
    if name == "linear":
        x, w = arguments["input"], arguments["weight"]
        system.contract(x, -1, w, -1)
        for axis in range(len(x.axes) - 1):
            system.same(out, axis, x, axis)
        for made in (w, arguments.get("bias")):
            if made is not None:
                system.same(out, -1, made, 0)
    elif name in CONVOLUTIONS or name in TRANSPOSED:
        _convolution(system, step)
    elif name in ("matmul", "mm", "bmm", "addmm", "baddbmm") and min(len(v.axes) for v in operands(step)) > 1:
        x, w = operands(step)
        if x.active and w.active:  # pinned: attention scores, which have a scale of their own
            system.zero(x, [len(x.axes) - 1])
            system.zero(w, [len(w.axes) - 2])
        else:
            system.contract(x, -1, w, -2)
        system.same(out, -2, x, -2)
        system.same(out, -1, w, -1)
        for axis in range(-len(out.axes), -2):
            system.product(out, [(x, 1), (w, 1)], axis)
        if len(step.inputs) == 3:
            _alike(system, out, [step.inputs[0]])
    elif name in ("mul", "div"):
        signs = [1, 1 if name == "mul" else -1]
        for axis in range(-len(out.axes), 0):
            system.product(out, list(zip(step.inputs, signs, strict=False)), axis)
    elif name in ("add", "sub"):
        scalar = len(step.inputs) < 2
        _alike(system, out, step.inputs)
        if scalar:
            system.zero(out)
    elif name in NORMS:
        _norm(system, step)
    elif name == "embedding":
        w = arguments["weight"]
        system.same(out, -1, w, 1)
        system.zero(w, [0])
    elif name == "scaled_dot_product_attention":
        for value in step.inputs:
            if value is not arguments["value"]:
                system.zero(value)
        for axis in range(len(out.axes)):
            system.same(out, axis, arguments["value"], axis)
    elif name in RECURRENT:
        for value in (*step.inputs, *step.outputs):
            system.zero(
                value, [n for n in range(len(value.axes)) if not (value in arguments["params"] and n == 1)]
            )
        for value in arguments["params"]:
            if len(value.axes) == 2:
                system.one(value, 1)
    elif name == "mean" or name == "sum":
        _reduction(system, step)
    elif name in MOVES:
        for result in step.outputs:
            _moved(system, step, result)
    else:
        for value in (*step.inputs, *step.outputs):
            system.zero(value)


def _convolution(system: "_System", step: Step) -> None:
    x, w, out = step.arguments["input"], step.arguments["weight"], step.outputs[0]
    channel = 1 - len(w.axes)
    taken, made = (0, 1) if transposed(step) else (1, 0)
    system.contract(x, channel, w, taken)
    if step.arguments.get("groups", 1) == 1:
        system.same(out, channel, w, made)
    else:  # a group's copies are whole: nothing is shared among them
        system.zero(out, [channel])
        system.zero(w, [made])
        system.zero(x, [channel])
    if step.arguments.get("bias") is not None:
        system.same(out, channel, step.arguments["bias"], 0)


def _norm(system: "_System", step: Step) -> None:
    x, out = step.inputs[0], step.outputs[0]
    system.zero(x)
    affine = [step.arguments[key] for key in ("weight", "bias") if step.arguments.get(key) is not None]
    first = (
        len(out.axes) - len(affine[0].axes)
        if (affine and "layer_norm" in step.name) or ("rms" in step.name and affine)
        else 1
    )
    for value in step.inputs[1:]:
        if not any(value is each for each in affine):
            system.zero(value)
    for value in affine:
        for axis in range(len(value.axes)):
            system.same(out, first + axis, value, axis)
    covered = range(first, first + len(affine[0].axes)) if affine else range(0)
    system.zero(out, [axis for axis in range(len(out.axes)) if axis not in covered])


def _reduction(system: "_System", step: Step) -> None:
    x, out = step.inputs[0], step.outputs[0]
    kept = {id(axis): n for n, axis in enumerate(out.axes)}
    for n, axis in enumerate(x.axes):
        if id(axis) in kept and axis.size != 1:
            system.same(out, kept[id(axis)], x, n)
        elif step.name == "sum":
            system.one(x, n)
        else:
            system.zero(x, [n])


def _alike(system: "_System", out: Value, summands: Iterable[Value]) -> None:
    for value in summands:
        for axis in range(-len(out.axes), 0):
            if len(value.axes) >= -axis and (value.shape[axis] != 1 or out.shape[axis] == 1):
                system.same(out, axis, value, axis)
            else:
                system.zero(out, [axis])


def _moved(system: "_System", step: Step, out: Value) -> None:
    """Each axis of the result has its degrees from where its spaces stood before."""
    for n, axis in enumerate(out.axes):
        for value in step.inputs:
            places = [m for m, other in enumerate(value.axes) if other is axis] or range(len(value.axes))
            for m in places:
                system.same(out, n, value, m)


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


class _System:
    def __init__(self, solver: Solver) -> None:
        self.where = ""
        self.conflicts: dict[str, set[Term]] = {}  # where -> the spaces it is about
        self._solver = solver
        self._terms: dict[int, Term] = {}  # atoms by number
        self._unknowns: dict[Key, _Unknown | None] = {}
        self._atoms: dict[int, frozenset[int]] = {}
        self._equations: list[_Equation] = []
        self._facts: list[tuple[_Unknown, int, str]] = []

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

    def contract(self, x: Value, axis_x: int, w: Value, axis_w: int) -> None:
        first, second = self._unknown(x, axis_x), self._unknown(w, axis_w)
        if first is not None and second is not None:
            self._add([(first, 1), (second, 1)], 1, first.atoms & second.atoms)

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
        for unknown, degree, where in self._facts:
            root = _root(unknown)
            self._learn(root, dict.fromkeys(root.atoms, degree), where, queue)
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
        found: dict[int, tuple[_Unknown, Degree]] = {}
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
                    found.setdefault(id(root), (root, {}))[1][atom] = left // sign
        for root, degrees in found.values():
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
            self._facts.append((unknown, degree, self.where))

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
