"""Hugging Face's transformers: warm starts for their Trainer, by one callback."""

from modelkeeper.integrations.huggingface.callback import WarmStart

__all__ = ["WarmStart"]
