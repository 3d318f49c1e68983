"""Warm starts for `net.fit` of skorch, and for searches of scikit-learn over it, by one callback."""

from modelkeeper.integrations.skorch.callback import WarmStart

__all__ = ["WarmStart"]
