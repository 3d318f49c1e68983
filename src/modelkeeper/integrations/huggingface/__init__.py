"""Hugging Face's transformers: a callback for their Trainer, and the folders that they leave behind."""

from modelkeeper.integrations.huggingface.callback import WarmStart

__all__ = ["WarmStart"]
