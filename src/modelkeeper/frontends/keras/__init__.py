"""Keras models, on any backend: described as graphs, read and loaded.

from modelkeeper.frontends.keras import FRONTEND
weights = dict(FRONTEND.read(model))
recalibrate(model, batches)                  statistics of batch norms, from data
program = record_program(model)              what it computes, to be run without its code
"""

from modelkeeper.frontends.keras.behaviour import difference, recalibrate
from modelkeeper.frontends.keras.frontend import FRONTEND, KerasFrontend
from modelkeeper.frontends.keras.record_program import record_program

__all__ = ["FRONTEND", "KerasFrontend", "difference", "recalibrate", "record_program"]
