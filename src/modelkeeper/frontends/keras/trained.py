"""Is a Keras model trained already, or fresh from its initialisation? What are the signs?

Its optimizer may have counted steps. Otherwise only small variables are looked at: Keras initialises biases,
gains and shifts of norms and moving statistics with zeros and ones, and training does not leave them so. One
variable is no sign: more than half of those that were looked at must agree.
"""

from typing import Any

import numpy as np

from modelkeeper.frontends.keras.numbers import to_numpy
from modelkeeper.frontends.keras.variables import Variables

_SAYS = (
    "bias",
    "beta",
    "gamma",
    "moving_mean",
    "moving_variance",
)  # variables that are zeros or ones at first


def trained(model: Any) -> str:
    """The signs that a model is trained already; "" if there are none."""
    optimizer: Any = getattr(model, "optimizer", None)
    counted: Any = getattr(optimizer, "iterations", None)
    steps = 0 if counted is None else int(to_numpy(counted))
    if steps:
        return f"its optimizer has made {steps:,} steps"
    seen = [
        to_numpy(named.variable)
        for named in Variables(model)
        if named.stored and named.name.rpartition(".")[2] in _SAYS and "float" in named.dtype
    ]
    moved = sum(not np.isin(values.astype(np.float32), (0.0, 1.0)).all() for values in seen)
    if len(seen) > 1 and moved * 2 > len(seen):
        return f"{moved} of {len(seen)} biases and norms are not as they are initialised"
    return ""
