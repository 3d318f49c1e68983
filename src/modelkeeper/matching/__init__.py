"""Matching: which layers two models share (`align`), and which models of a zoo are nearest (`Index`)."""

from modelkeeper.matching.alignment import Alignment, align
from modelkeeper.matching.prepare import Prepared, prepare

__all__ = ["Alignment", "Prepared", "align", "prepare"]
