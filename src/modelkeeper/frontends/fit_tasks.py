"""What should each layer of a child compute, and what became of it? Between who plans and who fits.

An aim names layers of the two graphs; it knows neither numbers nor a framework.
`modelkeeper.warmstart.calibration` makes aims from a plan, a front end's `calibrate`
fits layers to them and reports a `Calibration`.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

Index = np.ndarray[Any, np.dtype[np.int64]]
Shares = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, eq=False)
class Target:
    """A layer of the parent, and which of its units each unit of the child is to follow (-1: none)."""

    layer: str
    units: Index
    factor: Shares


@dataclass(frozen=True, eq=False)
class Aim:
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
    targets: tuple[Target, ...] = ()


@dataclass(frozen=True)
class Fitted:
    """What became of one layer. Errors are on held-out examples, relative to the variance of the target."""

    layer: str
    target: str  # the parent's layer that it follows, or "labels"
    how: str  # fitted, statistics, kept, or why it could not be fitted
    before: float = float("nan")
    after: float = float("nan")


@dataclass(frozen=True)
class Calibration:
    """What a calibration did, what it cost, and by which measure it was kept or not."""

    kept: bool
    measure: str  # what the two next numbers are; smaller is better
    plain: float
    calibrated: float
    layers: tuple[Fitted, ...]
    examples: int
    passed_over: int  # examples of another shape than the first
    seconds: float
    memory: int  # bytes of activations, about
    why: str = ""  # it was not kept

    @property
    def fitted(self) -> int:
        """The number of layers whose weights were fitted."""
        return sum(each.how == "fitted" for each in self.layers)

    def to_dict(self) -> dict[str, Any]:
        """Plain data. What is not known (of a layer that was left alone) is None."""
        layers = [
            {key: None if value != value else value for key, value in asdict(each).items()}
            for each in self.layers
        ]
        return {**asdict(self), "layers": layers, "fitted": self.fitted}
