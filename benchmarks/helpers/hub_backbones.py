"""Which backbones of keras_hub can be built small, without any file? Their arguments, by name.

A backbone takes sizes under names that most of them share, so one table of sizes builds the language models
and the vision transformers; those with lists of stages have their own. Those that are put together from other
backbones, or take whole configurations, are left out.
"""

import inspect
from typing import Any

SIZES: dict[str, Any] = {
    "vocabulary_size": 100,
    "vocab_size": 100,
    "num_layers": 2,
    "num_layers_enc": 2,
    "num_layers_dec": 2,
    "num_heads": 2,
    "num_attention_heads": 2,
    "num_query_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "head_size": 8,
    "hidden_dim": 16,
    "hidden_size": 16,
    "embedding_dim": 8,
    "intermediate_dim": 32,
    "mlp_dim": 32,
    "max_sequence_length": 16,
    "num_experts": 4,
    "moe_intermediate_dim": 16,
    "shared_expert_intermediate_dim": 16,
    "patch_size": 8,
    "image_shape": (32, 32, 3),
}
OWN: dict[str, dict[str, Any]] = {
    "ResNetBackbone": {
        "input_conv_filters": [64],
        "input_conv_kernel_sizes": [3],
        "stackwise_num_filters": [64, 128],
        "stackwise_num_blocks": [2, 2],
        "stackwise_num_strides": [1, 2],
        "block_type": "basic_block",
    },
    "DenseNetBackbone": {"stackwise_num_repeats": [2, 2]},
    "VGGBackbone": {"stackwise_num_repeats": [1, 1], "stackwise_num_filters": [8, 16]},
    "XceptionBackbone": {"stackwise_conv_filters": [[8, 16], [32, 32]], "stackwise_pooling": [True, False]},
    "CSPNetBackbone": {
        "stem_filters": 16,
        "stem_kernel_size": 3,
        "stem_strides": 1,
        "stackwise_depth": [1, 2],
        "stackwise_strides": [1, 2],
        "stackwise_num_filters": [16, 32],
        "block_type": "dark_block",
        "stage_type": "dark",
    },
    "MiTBackbone": {
        "layerwise_depths": [1, 1],
        "num_layers": 2,
        "layerwise_num_heads": [1, 2],
        "layerwise_sr_ratios": [2, 1],
        "max_drop_path_rate": 0.1,
        "hidden_dims": [16, 32],
        "layerwise_patch_sizes": [7, 3],
        "layerwise_strides": [4, 2],
    },
    "SwinTransformerBackbone": {
        "embed_dim": 8,
        "depths": [1, 1],
        "num_heads": [1, 2],
        "window_size": 4,
        "patch_size": 4,
    },
    "DINOV2Backbone": {"position_embedding_shape": (32, 32, 3)},
    "WhisperBackbone": {"max_encoder_sequence_length": 16, "max_decoder_sequence_length": 16},
}
# Read files, take other backbones, or are no models on their own.
LEFT_OUT = frozenset({"Backbone", "FeaturePyramidBackbone", "FluxBackbone"})


def names() -> list[str]:
    """The backbones whose arguments the tables know, in alphabetical order."""
    from keras_hub import models

    known = [name for name in dir(models) if name.endswith("Backbone") and name not in LEFT_OUT]
    return [name for name in known if not _missing(getattr(models, name), name)]


def build(name: str) -> Any:
    """A small backbone, freshly initialised."""
    from keras_hub import models

    backbone = getattr(models, name)
    given = {key: size for key, size in SIZES.items() if key in _parameters(backbone)}
    return backbone(**{**given, **OWN.get(name, {})})


def _parameters(backbone: Any) -> dict[str, inspect.Parameter]:
    return {
        name: parameter
        for name, parameter in inspect.signature(backbone.__init__).parameters.items()
        if name != "self" and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    }


def _missing(backbone: Any, name: str) -> list[str]:
    needed = [key for key, p in _parameters(backbone).items() if p.default is p.empty]
    return [key for key in needed if key not in SIZES and key not in OWN.get(name, {})]
