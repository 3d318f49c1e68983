"""Keras models, on any backend: described as graphs, read and loaded.

from modelkeeper.frontends.keras import FRONTEND
weights = dict(FRONTEND.read(model))
"""

from modelkeeper.frontends.keras.frontend import FRONTEND, KerasFrontend

__all__ = ["FRONTEND", "KerasFrontend"]
