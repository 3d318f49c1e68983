"""What should each layer of a child compute, and what became of it? Between who plans and who fits.

    FitTask       one layer of the child that can be fitted, by the names of the two graphs
    FitPlanner    gives the weights to start from and the tasks, once the parent's units are ranked
    Budget        how many examples, seconds and bytes may be spent
    Calibration   what was fitted, by which measure it was kept or not, and the cost

Tasks know neither numbers nor a framework. `modelkeeper.warmstart.calibration` makes them from a plan, and a
front end's `Runner.calibrate` fits layers to them. What is reported is plain data: over JSON it comes back.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

if TYPE_CHECKING:
    import numpy as np

    from modelkeeper.weights import Array

    Index = np.ndarray[Any, np.dtype[np.int64]]
    Shares = np.ndarray[Any, np.dtype[np.float64]]

Progress = Callable[[int, int, str], None]  # layers done, layers in all, the one at hand


@dataclass(frozen=True, eq=False)
class FitTarget:
    """A layer of the parent, and which of its units each unit of the child is to follow (-1: none)."""

    layer: str
    units: "Index"
    factor: "Shares"


@dataclass(frozen=True, eq=False)
class FitTask:
    """One layer of the child that can be fitted.

    kind      projection (conv, linear: weights and bias), norm (gain and bias), head (to labels); inserted: a
              batch norm without a partner, that is to go on doing what it does with statistics of its own
    weight    the tensor that is fitted: the weight, or the gain
    bias      the bias that goes with it, or ""
    flipped   the weight is (in, out), not (out, in)
    norm      the batch norm that its output goes straight into, or "", and that norm's tensors by role
    end       the layer whose output is to match: the layer itself, its norm, or the sum it goes into
    targets   what to match, the best first; maps of other sizes are resized if none fits. The last one is
              what lends: a layer that does just that already is left alone
    """

    layer: str
    kind: str
    weight: str
    bias: str = ""
    flipped: bool = False
    norm: str = ""
    norm_tensors: tuple[tuple[str, str], ...] = ()
    end: str = ""
    targets: tuple[FitTarget, ...] = ()


class FitStart(NamedTuple):
    """What a calibration begins with: the child's weights by name, and what each layer should compute.

    Tensors that are frozen have no task, and get no new statistics either.
    """

    weights: "Mapping[str, Array]"
    tasks: Sequence[FitTask]
    frozen: frozenset[str] = frozenset()


class FitPlanner(Protocol):
    """Decides which layers are fitted, and to what, from a ranking of the parent's units by the examples."""

    @property
    def reads(self) -> Sequence[tuple[str, int]]:
        """The parent's layers whose weights read one whole space, and that space: to rank its units by."""

    def start(self, ranks: "Mapping[int, Array]") -> FitStart:
        """The weights to start from and the tasks. `ranks`: of the units, by the parent's space."""


@dataclass(frozen=True)
class Budget:
    """How much a calibration may take."""

    examples: int = 2_048  # at most so many are used
    seconds: float | None = None  # at most about so long; None: as 100 training steps of the child take
    memory: int = 2**30  # at most so many bytes of activations
    sandbox: str = "on"  # where a parent's program runs that came from elsewhere: see `Settings.sandbox`


@dataclass(frozen=True)
class FittedLayer:
    """The result of fitting one layer. Errors: on held-out examples, relative to the target's variance."""

    layer: str
    target: str  # the parent's layer that it follows, or "labels"
    how: str  # fitted, statistics, kept, or why it could not be fitted
    before: float | None = None  # None: it was not compared
    after: float | None = None


@dataclass(frozen=True)
class Calibration:
    """What a calibration did, what it cost, and by which measure it was kept or not."""

    kept: bool
    measure: str  # what the two next numbers are; smaller is better
    plain: float
    calibrated: float
    layers: tuple[FittedLayer, ...]
    examples: int
    passed_over: int  # examples of another shape than the first
    seconds: float
    memory: int  # bytes of activations, about
    why: str = ""  # it was not kept

    @property
    def fitted(self) -> int:
        """The number of layers whose weights were fitted."""
        return sum(layer.how == "fitted" for layer in self.layers)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with the number of fitted layers. What is not known is None."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        layers = [
            {key: None if value != value else value for key, value in layer.items()}
            for layer in plain["layers"]
        ]
        return plain | {"layers": layers, "fitted": self.fitted}
