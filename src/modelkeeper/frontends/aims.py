"""What should each layer of a child compute? The units of a parent's layer, for whoever fits it.

An aim names layers of the two graphs; it knows neither numbers nor a framework. `modelkeeper.calibration` makes
aims from a plan, a front end's `calibrate` fits layers to them.
"""

from dataclasses import dataclass
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

    kind      projection (conv, linear: weights and bias), norm (gain and bias), head (to labels)
    weight    the tensor that is fitted: the weight, or the gain
    bias      the bias that goes with it, or ""
    flipped   the weight is (in, out), not (out, in)
    norm      the batch norm that its output goes straight into, or "", and that norm's tensors by role
    end       the layer whose output is to match: the layer itself, its norm, or the sum it goes into
    targets   what to match, the best first; one whose shape does not fit is passed over
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
