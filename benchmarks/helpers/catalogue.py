"""Real architectures to try things on: every classifier of pytorchcv, and tiny transformers.

    classifiers()   names of pytorchcv's image classifiers, the zoo that the ModelKeeper paper used
    TRANSFORMERS    name -> how to configure a tiny model of that family
    build(name)     the model, randomly initialised; on the meta device if asked (shapes only)

Nothing is downloaded: pytorchcv and transformers build their models from code.
"""

import logging
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

# Modules of pytorchcv that do something else than classify images: segmentation, poses, speech ...
_NO_CLASSIFIERS = frozenset(
    """fcn8sd pspnet deeplabv3 icnet fastscnn cgnet dabnet sinet bisenet danet fpenet contextnet lednet
        esnet edanet enet erfnet linknet segnet unet sqnet alphapose_coco simplepose_coco
        simpleposemobile_coco lwopenpose_cmupan ibppose_coco prnet centernet lffd pfpcnet voca nvpattexp
        superpointnet jasper jasperdr quartznet""".split()
)


def classifiers() -> list[str]:
    """The names of pytorchcv's image classifiers."""
    from pytorchcv import model_provider

    models: dict[str, Callable[..., nn.Module]] = model_provider._models
    return [
        name for name, make in models.items() if make.__module__.rpartition(".")[2] not in _NO_CLASSIFIERS
    ]


def distinct_classifiers() -> list[str]:
    """Those that differ in more than the number of classes."""
    return [name for name in classifiers() if not name.endswith(("_cifar100", "_svhn"))]


def cifar_classifiers() -> list[str]:
    """Those made for images of CIFAR's size, one of the several numbers of classes each."""
    return [name for name in classifiers() if name.endswith("_cifar10")]


_SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 99,
}
_DECODER = {**_SMALL, "num_key_value_heads": 2, "max_position_embeddings": 64}
_IMAGE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
}
_SEQ2SEQ = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "vocab_size": 99,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
_STAGES = {"hidden_sizes": [16, 24, 32, 40], "depths": [1, 2, 1, 1]}

# name -> (the Auto class that makes it, its model type, what is small about it)
TRANSFORMERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("AutoModelForSequenceClassification", "bert", {**_SMALL}),
    "bert-lm": ("AutoModelForMaskedLM", "bert", {**_SMALL}),
    "roberta": ("AutoModelForSequenceClassification", "roberta", {**_SMALL, "max_position_embeddings": 64}),
    "distilbert": (
        "AutoModelForSequenceClassification",
        "distilbert",
        {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": 99},
    ),
    "albert": ("AutoModelForSequenceClassification", "albert", {**_SMALL, "embedding_size": 16}),
    "electra": ("AutoModelForSequenceClassification", "electra", {**_SMALL, "embedding_size": 16}),
    "convbert": ("AutoModelForSequenceClassification", "convbert", {**_SMALL, "embedding_size": 16}),
    "mobilebert": (
        "AutoModelForSequenceClassification",
        "mobilebert",
        {**_SMALL, "embedding_size": 32, "intra_bottleneck_size": 32},
    ),
    "mpnet": ("AutoModelForSequenceClassification", "mpnet", {**_SMALL}),
    "deberta": ("AutoModelForSequenceClassification", "deberta", {**_SMALL}),
    "deberta-v2": ("AutoModelForSequenceClassification", "deberta-v2", {**_SMALL}),
    "funnel": (
        "AutoModelForSequenceClassification",
        "funnel",
        {"d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 64, "block_sizes": [1, 1], "vocab_size": 99},
    ),
    "squeezebert": ("AutoModelForSequenceClassification", "squeezebert", {**_SMALL, "embedding_size": 32}),
    "fnet": ("AutoModelForSequenceClassification", "fnet", {**_SMALL}),
    "modernbert": ("AutoModelForSequenceClassification", "modernbert", {**_SMALL, "pad_token_id": 0}),
    "gpt2": (
        "AutoModelForCausalLM",
        "gpt2",
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99, "n_positions": 64},
    ),
    "gpt_neo": (
        "AutoModelForCausalLM",
        "gpt_neo",
        {
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "vocab_size": 99,
            "attention_types": [[["global", "local"], 1]],
        },
    ),
    "gpt_neox": ("AutoModelForCausalLM", "gpt_neox", {**_SMALL}),
    "gptj": (
        "AutoModelForCausalLM",
        "gptj",
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99, "rotary_dim": 4, "n_positions": 64},
    ),
    "bloom": (
        "AutoModelForCausalLM",
        "bloom",
        {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99},
    ),
    "opt": (
        "AutoModelForCausalLM",
        "opt",
        {**_SMALL, "ffn_dim": 64, "word_embed_proj_dim": 32, "max_position_embeddings": 64},
    ),
    "llama": ("AutoModelForCausalLM", "llama", {**_DECODER}),
    "mistral": ("AutoModelForCausalLM", "mistral", {**_DECODER}),
    "qwen2": ("AutoModelForCausalLM", "qwen2", {**_DECODER}),
    "qwen3": ("AutoModelForCausalLM", "qwen3", {**_DECODER, "head_dim": 8}),
    "gemma": ("AutoModelForCausalLM", "gemma", {**_DECODER, "head_dim": 8}),
    "phi": ("AutoModelForCausalLM", "phi", {**_DECODER}),
    "falcon": ("AutoModelForCausalLM", "falcon", {**_SMALL}),
    "t5": (
        "AutoModelForSeq2SeqLM",
        "t5",
        {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 99},
    ),
    "bart": ("AutoModelForSeq2SeqLM", "bart", {**_SEQ2SEQ}),
    "pegasus": ("AutoModelForSeq2SeqLM", "pegasus", {**_SEQ2SEQ}),
    "marian": ("AutoModelForSeq2SeqLM", "marian", {**_SEQ2SEQ, "pad_token_id": 1}),
    "vit": ("AutoModelForImageClassification", "vit", {**_IMAGE, "patch_size": 8}),
    "deit": (
        "AutoModelForImageClassification",
        "deit",
        {**_IMAGE, "patch_size": 8, "architectures": ["DeiTForImageClassification"]},
    ),
    "beit": ("AutoModelForImageClassification", "beit", {**_IMAGE, "patch_size": 8}),
    "dinov2": (
        "AutoModelForImageClassification",
        "dinov2",
        {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "image_size": 28,
            "patch_size": 14,
        },
    ),
    "swin": (
        "AutoModelForImageClassification",
        "swin",
        {
            "image_size": 32,
            "patch_size": 2,
            "embed_dim": 16,
            "depths": [1, 2],
            "num_heads": [2, 4],
            "window_size": 4,
        },
    ),
    "convnext": ("AutoModelForImageClassification", "convnext", {**_STAGES, "image_size": 32}),
    "convnextv2": ("AutoModelForImageClassification", "convnextv2", {**_STAGES, "image_size": 32}),
    "resnet": (
        "AutoModelForImageClassification",
        "resnet",
        {**_STAGES, "embedding_size": 16, "layer_type": "basic"},
    ),
    "regnet": (
        "AutoModelForImageClassification",
        "regnet",
        {**_STAGES, "embedding_size": 16, "groups_width": 8},
    ),
    "mobilenet_v2": (
        "AutoModelForImageClassification",
        "mobilenet_v2",
        {"depth_multiplier": 0.25, "image_size": 64},
    ),
    "poolformer": (
        "AutoModelForImageClassification",
        "poolformer",
        {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]},
    ),
    "segformer": (
        "AutoModelForImageClassification",
        "segformer",
        {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 3, 4]},
    ),
    "wav2vec2": (
        "AutoModelForCTC",
        "wav2vec2",
        {
            **_SMALL,
            "conv_dim": [16, 16, 16],
            "conv_stride": [5, 2, 2],
            "conv_kernel": [10, 3, 3],
            "num_conv_pos_embeddings": 16,
        },
    ),
}


def build(name: str, *, meta: bool = False) -> nn.Module:
    """A model of the catalogue, in evaluation mode."""
    make = transformer if name in TRANSFORMERS else _classifier
    if meta:
        try:
            with torch.device("meta"):
                return make(name).eval()
        except (RuntimeError, NotImplementedError):  # some constructors look at numbers
            pass
    return make(name).eval()


def _classifier(name: str) -> nn.Module:
    from pytorchcv.model_provider import get_model

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.__dict__.setdefault("int", int)  # this pytorchcv was written for an older NumPy
        model: nn.Module = get_model(name)
    return model


def transformer(name: str, **options: Any) -> nn.Module:
    """A tiny transformer of the catalogue, with other options if any are given."""
    import transformers

    auto, family, small = TRANSFORMERS[name]
    transformers.utils.logging.set_verbosity(logging.ERROR)
    config = transformers.AutoConfig.for_model(family, **{**small, **options})
    model: nn.Module = getattr(transformers, auto).from_config(config)
    return model
