"""Warm starts for `trainer.fit`, of `lightning` and `pytorch_lightning`, by one callback."""

from modelkeeper.integrations.lightning.callback import WarmStart

__all__ = ["WarmStart"]
