"""Tiny language models: GPT-2, Llama and BERT (as a decoder) as transformers builds them from configs."""

import importlib
from typing import Any

import torch
from torch import nn

from benchmarks.training.networks import Spec
from benchmarks.training.tasks import CONTEXT

HEAD = 16  # width of an attention head


def build(spec: Spec, classes: int, seed: int) -> nn.Module:
    """A model by its kind, width and depth, newly initialised."""
    transformers: Any = importlib.import_module("transformers")
    torch.manual_seed(seed)
    width, depth = spec["width"], spec["depth"]
    common: dict[str, Any] = {
        "vocab_size": classes,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": None,
    }
    shape = {
        "hidden_size": width,
        "num_hidden_layers": depth,
        "num_attention_heads": width // HEAD,
        "max_position_embeddings": CONTEXT,
        **common,
    }
    if spec["kind"] == "gpt2":
        config = transformers.GPT2Config(
            n_embd=width, n_layer=depth, n_head=width // HEAD, n_positions=CONTEXT, **_DRY_GPT2, **common
        )
        model: Any = transformers.GPT2LMHeadModel(config)
    elif spec["kind"] == "llama":
        model = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(intermediate_size=3 * width, use_cache=False, **shape)
        )
    else:
        model = transformers.BertLMHeadModel(
            transformers.BertConfig(
                intermediate_size=4 * width, is_decoder=True, use_cache=False, **_DRY_BERT, **shape
            )
        )
    return model  # type: ignore[no-any-return]


_DRY_GPT2 = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "use_cache": False}
_DRY_BERT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
KINDS = ("gpt2", "llama", "bert")
