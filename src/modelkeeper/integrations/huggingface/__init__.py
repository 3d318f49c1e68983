"""What Hugging Face's transformers leave behind and call: folders with a config and weights."""
