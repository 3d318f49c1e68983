"""Warm starts for `learn.fit` of fastai, by one callback."""

from modelkeeper.integrations.fastai.callback import WarmStart

__all__ = ["WarmStart"]
