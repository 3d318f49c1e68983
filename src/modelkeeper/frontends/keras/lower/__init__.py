"""From keras.ops to the vocabulary: a rule for each operation, grouped by what they do."""

from modelkeeper.frontends.keras.lower import (  # noqa: F401 (importing them registers their rules)
    contractions,
    creation,
    norms,
    pointwise,
    recurrent,
    reductions,
    shape,
    windows,
)
from modelkeeper.frontends.keras.lower.lowering import Lowering

__all__ = ["Lowering"]
