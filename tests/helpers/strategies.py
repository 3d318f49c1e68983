"""Random valid graphs for property tests.

`graphs()` grows a graph as a front end would record one: it starts from inputs and adds, step by step,
a layer that takes values made before. Every axis is made of the spaces that really flow there, so the
graphs have what real ones have: chains, branches, residual adds, gates, concatenations, flattened
products, tied and dead tensors, and notes. They are small: shrinking and isomorphism checks stay quick.
"""

from dataclasses import dataclass, field

from hypothesis import strategies as st

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
    Pin,
    Product,
    Space,
    Tensor,
    leaves,
)

VIA = (), ("relu",), ("gelu", "dropout"), ("max_pool",)
DTYPES = "float32", "bfloat16", "float64"

words = st.text(st.characters(codec="utf-8"), max_size=8)
attribute_values = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(-1e18, 1e18),
    words,
    st.lists(st.integers(-9, 9), max_size=3).map(tuple),
)
notes = st.builds(Note, topic=st.sampled_from(["opaque", "dead", "conflict"]), where=words, text=words)


@dataclass
class Value:
    """What flows: who made it, and what its features are made of."""

    source: int
    of: Expression


@dataclass
class Growth:
    """A graph on its way."""

    draw: st.DrawFn
    prefix: str
    layers: list[Layer] = field(default_factory=list)
    spaces: list[Space] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)

    def space(self) -> Atom:
        pins = self.draw(
            st.sampled_from(
                [(), (), (Pin("output"),), (Pin("opaque", "an op", "without a rule"), Pin("rows"))]
            )
        )
        self.spaces.append(Space(self.draw(st.integers(1, 6)), pins, self.draw(st.booleans())))
        return Atom(len(self.spaces) - 1, self.spaces[-1].size)

    def value(self) -> Value:
        return self.draw(st.sampled_from(self.values))

    def edge(self, value: Value) -> Edge:
        return Edge(value.source, self.draw(st.sampled_from(VIA)))

    def layer(
        self, kind: str, *inputs: Edge, tensors: tuple[Tensor, ...] = (), of: Expression | None
    ) -> None:
        """Add a layer; with `of`, what it makes can be taken by later ones."""
        number = len(self.layers)
        names = st.dictionaries(st.sampled_from(["stride", "groups", "eps"]), attribute_values, max_size=2)
        self.layers.append(Layer(self.name(number), kind, inputs, tensors, self.draw(names)))
        if of is not None:
            self.values.append(Value(number, of))

    def name(self, number: int) -> str:
        return f"{self.prefix}{number}"

    def tensor(self, role: str, *axes: Axis, buffer: bool = False) -> Tensor:
        return Tensor(
            f"{self.name(len(self.layers))}.{role}",
            role,
            self.draw(st.sampled_from(DTYPES)),
            axes,
            trainable=not buffer and self.draw(st.booleans()),
            buffer=buffer,
            live=self.draw(st.integers(0, 9)) > 0,
            stored=not buffer or self.draw(st.booleans()),
        )

    def linear(self, edge: Edge, taken: Expression, out: Expression) -> None:
        degrees = tuple((leaf.space, 1) for leaf in dict.fromkeys(leaves(taken)) if isinstance(leaf, Atom))
        weight = self.tensor("weight", Axis("out", out), Axis("in", taken, degrees))
        bias = self.draw(st.booleans())
        tensors = (weight, self.tensor("bias", Axis("out", out))) if bias else (weight,)
        self.layer("linear", edge, tensors=tensors, of=out)

    # The steps: each adds what one or two lines of a user's model would.

    def dense(self) -> None:
        value = self.value()
        self.linear(self.edge(value), value.of, self.space())

    def flatten(self) -> None:
        value = self.value()
        factors = value.of.factors if isinstance(value.of, Product) else (value.of,)
        taken = Product((*factors, Fixed(self.draw(st.integers(1, 4)), "pixels")))
        self.linear(Edge(value.source, ("flatten",)), taken, self.space())

    def convolution(self) -> None:
        value = self.value()
        kernel = Axis("kernel", Fixed(self.draw(st.sampled_from([1, 3])), "kernel"))
        out = self.space()
        weight = self.tensor("weight", Axis("out", out), Axis("in", value.of), kernel, kernel)
        self.layer("conv", self.edge(value), tensors=(weight,), of=out)

    def norm(self) -> None:
        value = self.value()
        axis = Axis("out", value.of)
        tensors = (
            self.tensor("gain", axis),
            self.tensor("mean", axis, buffer=True),
            self.tensor("count", buffer=True),
        )
        self.layer("batch_norm", self.edge(value), tensors=tensors, of=value.of)

    def residual(self) -> None:
        """A branch that comes back to where it left, as an add or a gate."""
        value = self.value()
        self.linear(self.edge(value), value.of, value.of)
        kind = self.draw(st.sampled_from(["add", "multiply"]))
        self.layer(kind, self.edge(value), self.edge(self.values[-1]), of=value.of)

    def concat(self) -> None:
        joined = self.draw(st.lists(st.sampled_from(self.values), min_size=2, max_size=3))
        parts = [
            part
            for value in joined
            for part in (value.of.parts if isinstance(value.of, Concat) else (value.of,))
        ]
        self.layer("concat", *[self.edge(value) for value in joined], of=Concat(tuple(parts)))

    def attend(self) -> None:
        """A merge whose operands have an order."""
        value, other = self.value(), self.value()
        self.layer("attention", self.edge(value), self.edge(other), of=value.of)

    def tie(self) -> None:
        """Call a layer again, on another value of the same kind: its tensors are shared."""
        callable_again = [layer for layer in self.layers if layer.tensors and layer.inputs]
        if callable_again:
            layer = self.draw(st.sampled_from(callable_again))
            made = next(v.of for v in self.values if self.layers[v.source] is layer)
            taken = next(v.of for v in self.values if v.source == layer.inputs[0].source)
            value = self.draw(st.sampled_from([v for v in self.values if v.of == taken]))
            self.layer(layer.kind, self.edge(value), tensors=layer.tensors, of=made)


STEPS = (
    Growth.dense,
    Growth.flatten,
    Growth.convolution,
    Growth.norm,
    Growth.residual,
    Growth.concat,
    Growth.attend,
    Growth.tie,
)


@st.composite
def graphs(draw: st.DrawFn, max_steps: int = 8) -> Graph:
    """A valid graph of some `max_steps` layers, between one or two inputs and one output."""
    growth = Growth(draw, prefix=draw(words.filter(lambda word: not word.startswith("."))))
    for _ in range(draw(st.integers(1, 2))):
        growth.layer("input", of=growth.space())
    for step in draw(st.lists(st.sampled_from(STEPS), max_size=max_steps)):
        step(growth)
    unused = {value.source for value in growth.values} - {e.source for l in growth.layers for e in l.inputs}
    growth.layer("output", *[Edge(source) for source in sorted(unused)], of=None)
    return Graph(
        draw(st.sampled_from(["torch", "keras"])),
        tuple(growth.layers),
        tuple(growth.spaces),
        tuple(draw(st.lists(notes, max_size=2))),
    )
