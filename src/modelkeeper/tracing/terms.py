"""Which axes must change width together? Solved by unification, as a type checker infers types.

While a front end walks over a model's operations, every axis of every value carries a term:

    atom       a space whose identity is still open: it may be bound to another term later
    fixed      a size that means nothing to a parent (a kernel, an image's channels)
    product    factors interleaved, first slowest: what a reshape merges
    concat     parts end to end: what a concatenation joins

`unify(a, b)` says that two axes are one: an atom is bound; a product against a product is refined by
factoring the larger leading factor; a concatenation is cut at the first boundary of either side.
`split` and `factor` open an atom from the other direction.

What does not fit is never guessed: the spaces concerned are pinned, with the reason, and stay apart.
A pin is soft, it forbids exact widening and nothing else.

    solver = Solver()
    channels = solver.atom(64)
    flat = solver.product([channels, solver.fixed(49, "spatial")])
    solver.unify(flat, solver.atom(3136), "fc")      # the linear layer reads channels x 49
"""

import itertools
import math
from collections.abc import Iterator, Sequence

from modelkeeper.graph.vocabulary import OPAQUE, Pin

ATOM, FIXED, PRODUCT, CONCAT = range(4)


class Straddles(Exception):
    """An axis cannot be cut here: the cut would go through the middle of a factor."""


class Term:
    """One axis, or a piece of one. Only a `Solver` makes and changes terms."""

    __slots__ = ("averaged", "bound", "kind", "leaves", "memo", "number", "origin", "parts", "pins", "size")

    def __init__(
        self, kind: int, size: int, number: int, parts: tuple["Term", ...] = (), origin: str = ""
    ) -> None:
        self.kind, self.size, self.number, self.parts, self.origin = kind, size, number, parts, origin
        self.bound: Term | None = None  # atoms: what this one turned out to be
        self.pins: tuple[Pin, ...] = ()  # atoms: why the width is not free
        self.averaged = False  # atoms: a statistic is taken over the units
        self.memo: tuple[int, Term] | None = None  # composites: normal form at an epoch
        self.leaves: tuple[int, list[Term]] | None = None  # composites: their atoms at an epoch

    def __repr__(self) -> str:
        if self.bound is not None:
            return repr(self.bound)
        match self.kind:
            case 0:
                return f"a{self.number}:{self.size}"
            case 1:
                return str(self.size)
            case _:
                return "(" + "*+"[self.kind - PRODUCT].join(map(repr, self.parts)) + ")"


class Solver:
    """Makes terms and keeps track of what has been found equal."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._epoch = 0
        self._statistics: list[Term] = []
        self._settled = 0  # how many statistics have been found to hold their spaces back
        self.one = Term(FIXED, 1, next(self._numbers), origin="one")
        self.opaque: dict[Pin, None] = {}  # what was not understood and pinned spaces, in order

    # -- making terms ---------------------------------------------------------------------------

    def atom(self, size: int) -> Term:
        """A new space. One of size 1 cannot be told from a broadcast axis and is fixed."""
        return Term(ATOM, size, next(self._numbers)) if size != 1 else self.one

    def fixed(self, size: int, origin: str) -> Term:
        return Term(FIXED, size, next(self._numbers), origin=origin) if size != 1 else self.one

    def product(self, factors: Sequence[Term]) -> Term:
        kept = tuple(factor for factor in factors if factor.size != 1)
        if len(kept) < 2:
            return kept[0] if kept else self.one
        return Term(PRODUCT, math.prod(factor.size for factor in kept), next(self._numbers), kept)

    def concat(self, parts: Sequence[Term]) -> Term:
        kept = tuple(part for part in parts if part.size)
        if len(kept) < 2:
            return kept[0] if kept else self.fixed(0, "empty")
        return Term(CONCAT, sum(part.size for part in kept), next(self._numbers), kept)

    # -- reading them ---------------------------------------------------------------------------

    def resolve(self, term: Term) -> Term:
        """The term in its current form: bound atoms followed, composites flat, fixed neighbours merged."""
        while term.bound is not None:
            term = term.bound
        if term.kind < PRODUCT:
            return term
        if term.memo is not None and term.memo[0] == self._epoch:
            return term.memo[1]
        parts: list[Term] = []
        for part in term.parts:
            part = self.resolve(part)
            for piece in part.parts if part.kind == term.kind else (part,):
                if parts and parts[-1].kind == FIXED and piece.kind == FIXED:
                    size = (
                        parts[-1].size * piece.size if term.kind == PRODUCT else parts[-1].size + piece.size
                    )
                    parts[-1] = self.fixed(size, parts[-1].origin)
                else:
                    parts.append(piece)
        if len(parts) == len(term.parts) and all(a is b for a, b in zip(parts, term.parts, strict=True)):
            result = term
        else:
            result = self.product(parts) if term.kind == PRODUCT else self.concat(parts)
        term.memo = result.memo = (self._epoch, result)
        return result

    def atoms(self, term: Term) -> list[Term]:
        """The open atoms of a term, from left to right."""
        term = self.resolve(term)
        if term.kind < PRODUCT:
            return [term] if term.kind == ATOM else []
        if term.leaves is None or term.leaves[0] != self._epoch:
            term.leaves = (self._epoch, [atom for part in term.parts for atom in self.atoms(part)])
        return term.leaves[1]

    # -- saying what is known -------------------------------------------------------------------

    def pin(self, term: Term, pin: Pin) -> None:
        """Pin the width of these spaces, for this reason."""
        for atom in self.atoms(term):
            if pin not in atom.pins:
                atom.pins = (*atom.pins, pin)
                if pin.code in OPAQUE:
                    self.opaque[pin] = None

    def average(self, term: Term) -> None:
        """Note a statistic over these spaces: copies of a unit must come in equal numbers."""
        self._statistics.append(term)
        for atom in self.atoms(term):
            atom.averaged = True

    def settle(self) -> None:
        """Pin the spaces under a statistic that cannot grow, as others beside them are pinned. Call it last.

        The parts that a statistic is taken over have to grow alike, so nothing beside a fixed part can.
        """
        before = -1
        while before != self._settled:
            before = self._settled
            for term in self._statistics:
                self._growth(term)

    def _growth(self, term: Term) -> int:
        """The power of a common factor of all free spaces in the size of a term."""
        term = self.resolve(term)
        if term.kind < PRODUCT:
            return int(term.kind == ATOM and not term.pins)
        growths = [self._growth(part) for part in term.parts]
        if term.kind == PRODUCT:
            return sum(growths)
        if min(growths) != max(growths):
            self.pin(term, Pin("statistic"))
            self._settled += 1
            return 0
        return growths[0]

    def unify(self, a: Term, b: Term, where: str) -> None:
        """Make two axes one and the same."""
        work = [(a, b)]
        while work:
            a, b = work.pop()
            a, b = self.resolve(a), self.resolve(b)
            if a is b:
                continue
            if a.size != b.size:
                self._apart(a, b, Pin("sizes", where, f"{a.size} and {b.size}"))
            elif a.kind == FIXED or b.kind == FIXED:
                self._fix(b if a.kind == FIXED else a, a.origin if a.kind == FIXED else b.origin)
            elif a.kind == ATOM or b.kind == ATOM:
                atom, other = (a, b) if a.kind == ATOM else (b, a)
                if other.kind != ATOM and atom in self.atoms(other):
                    self._apart(a, b, Pin("itself", where))
                else:
                    self._bind(atom, other)
            elif a.kind == b.kind == PRODUCT:
                first, second = (a, b) if a.parts[0].size >= b.parts[0].size else (b, a)
                large, small = first.parts[0], second.parts[0]
                if large.size % small.size:
                    self._apart(a, b, Pin("factors", where, f"{large.size} and {small.size}"))
                    continue
                lead, rest = self.factor(large, small.size, where)
                work.append((self.product([rest, *first.parts[1:]]), self.product(second.parts[1:])))
                work.append((lead, small))
            else:
                whole, other = (a, b) if a.kind == CONCAT else (b, a)
                cut = min(whole.parts[0].size, other.parts[0].size if other.kind == CONCAT else whole.size)
                left, right = self.split(whole, cut, where)
                other_left, other_right = self.split(other, cut, where)
                work += [(right, other_right), (left, other_left)]

    def split(self, term: Term, at: int, where: str) -> tuple[Term, Term]:
        """Cut an axis in two: the first `at` units and the rest."""
        term = self.resolve(term)
        if at in (0, term.size):
            empty = self.fixed(0, "empty")
            return (empty, term) if at == 0 else (term, empty)
        match term.kind:
            case 0:  # an atom turns out to be two
                left, right = self.atom(at), self.atom(term.size - at)
                self._bind(term, self.concat([left, right]))
                return left, right
            case 1:
                return self.fixed(at, term.origin), self.fixed(term.size - at, term.origin)
            case 3:
                before: list[Term] = []
                after = list(term.parts)
                while at and after[0].size <= at:
                    at -= after[0].size
                    before.append(after.pop(0))
                if at:
                    left, right = self.split(after.pop(0), at, where)
                    before.append(left)
                    after.insert(0, right)
                return self.concat(before), self.concat(after)
            case _:
                return self._split_product(term, at, where)

    def _split_product(self, term: Term, at: int, where: str) -> tuple[Term, Term]:
        lead, rest = term.parts[0], self.product(term.parts[1:])
        whole, remainder = divmod(at, rest.size)
        left, right = self.split(lead, whole, where)
        if not remainder:
            return self._times(left, rest), self._times(right, rest)
        middle, right = self.split(right, 1, where)
        self.pin(middle, Pin("straddled", where))
        inner_left, inner_right = self.split(rest, remainder, where)
        return self.concat([self._times(left, rest), inner_left]), self.concat(
            [inner_right, self._times(right, rest)]
        )

    def _times(self, lead: Term, rest: Term) -> Term:
        return self.product([lead, rest]) if lead.size else lead

    def factor(self, term: Term, lead: int, where: str) -> tuple[Term, Term]:
        """See an axis as `lead` x rest, the lead changing slowest. Raises Straddles if it cannot be."""
        term = self.resolve(term)
        if lead == 1:
            return self.one, term
        if lead == term.size:
            return term, self.one
        if term.size % lead:
            raise Straddles(f"{term.size} units are no {lead} x something")
        match term.kind:
            case 0:
                left, right = self.atom(lead), self.atom(term.size // lead)
                self._bind(term, self.product([left, right]))
                return left, right
            case 1:
                return self.fixed(lead, term.origin), self.fixed(term.size // lead, term.origin)
            case 2:
                before: list[Term] = []
                after = list(term.parts)
                while lead > 1 and lead % after[0].size == 0:
                    lead //= after[0].size
                    before.append(after.pop(0))
                if lead > 1:
                    left, right = self.factor(after.pop(0), lead, where)
                    before.append(left)
                    after.insert(0, right)
                return self.product(before), self.product(after)
            case _:
                return self._factor_concat(term, lead, where)

    def _factor_concat(self, term: Term, lead: int, where: str) -> tuple[Term, Term]:
        rest_size = term.size // lead
        if all(part.size % rest_size == 0 for part in term.parts):
            leads: list[Term] = []
            rest: Term | None = None
            for part in term.parts:
                part_lead, part_rest = self.factor(part, part.size // rest_size, where)
                leads.append(part_lead)
                if rest is None:
                    rest = part_rest
                else:
                    self.unify(rest, part_rest, where)
            assert rest is not None
            return self.resolve(self.concat(leads)), self.resolve(rest)
        pieces: list[Term] = []  # boundaries inside a row: the rows must be alike
        for _ in range(lead - 1):
            piece, term = self.split(term, rest_size, where)
            pieces.append(piece)
        for piece in pieces:
            self.unify(piece, term, where)
        return self.fixed(lead, "alike"), self.resolve(term)

    def reshape(self, terms: Sequence[Term], shape: Sequence[int], where: str) -> list[Term]:
        """The axes after a reshape in row-major order: merged into products, or factored."""
        if 0 in shape:
            return [self.atom(size) for size in shape]
        result: list[Term] = []
        for old, new in aligned([self.resolve(term) for term in terms if term.size != 1], shape):
            try:
                result += self._reshape(old, new, where)
            except Straddles as problem:
                pin = Pin("reshape", where, str(problem))
                for term in old:
                    self.pin(term, pin)
                result += self.unknown(new, pin)
        return result

    def _reshape(self, terms: Sequence[Term], shape: Sequence[int], where: str) -> list[Term]:
        if all(term.kind == FIXED for term in terms):
            return [self.fixed(size, terms[0].origin if terms else "one") for size in shape]
        queue = list(reversed(terms))
        result = []
        for size in shape:
            factors = []
            while size > 1:
                term = queue.pop()
                if size % term.size == 0:
                    factors.append(term)
                    size //= term.size
                elif term.size % size == 0:
                    lead, rest = self.factor(term, size, where)
                    factors.append(lead)
                    queue.append(rest)
                    size = 1
                else:
                    raise Straddles(f"{term.size} units do not fall into {size}")
            result.append(self.product(factors))
        return result

    def unknown(self, shape: Sequence[int], pin: Pin) -> list[Term]:
        """Axes that nothing is known of: spaces of their own, pinned for this reason."""
        axes = [self.atom(size) for size in shape]
        for axis in axes:
            self.pin(axis, pin)
        return axes

    # -- inside ---------------------------------------------------------------------------------

    def _bind(self, atom: Term, other: Term) -> None:
        for target in self.atoms(other):
            target.averaged |= atom.averaged
            target.pins += tuple(pin for pin in atom.pins if pin not in target.pins)
        atom.bound = other
        self._epoch += 1

    def _fix(self, term: Term, origin: str) -> None:
        for atom in self.atoms(term):
            self._bind(atom, self.fixed(atom.size, origin))

    def _apart(self, a: Term, b: Term, pin: Pin) -> None:
        self.pin(a, pin)
        self.pin(b, pin)


def aligned(terms: Sequence[Term], shape: Sequence[int]) -> Iterator[tuple[list[Term], list[int]]]:
    """The shortest runs of old axes and of new ones that hold the same units."""
    queue = list(reversed(terms))
    old: list[Term] = []
    new: list[int] = []
    before = after = 1
    for size in shape:
        new.append(size)
        after *= size
        while before < after:
            old.append(queue.pop())
            before *= old[-1].size
        if before == after:
            yield old, new
            old, new, before, after = [], [], 1, 1
