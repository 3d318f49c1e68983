"""Warm starts for `model.fit`, KerasTuner and AutoKeras, by one callback."""

from modelkeeper.integrations.keras.callback import WarmStart

__all__ = ["WarmStart"]
