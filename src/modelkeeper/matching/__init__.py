"""Matching: which layers two models share (`align`), and which models of a zoo are nearest (`Index`)."""

from modelkeeper.matching.alignment import Alignment, align
from modelkeeper.matching.index import Index
from modelkeeper.matching.prepare import Prepared, prepare
from modelkeeper.matching.search import Found, Match, Searchable, Snapshot

__all__ = ["Alignment", "Found", "Index", "Match", "Prepared", "Searchable", "Snapshot", "align", "prepare"]
