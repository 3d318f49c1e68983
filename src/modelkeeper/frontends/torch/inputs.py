"""What could this model be run on? Candidates for example inputs, the most telling evidence first.

    Hugging Face     the main input that the model names, sized by its config
    timm, imgclsmob  the input size that the model carries (`pretrained_cfg`, `in_size`)
    anything else    the first layer that says: a conv wants images (or sound, or video) of so many
                     channels, an embedding tokens, a linear or recurrent layer vectors or sequences

Candidates are only tried; the first on which the model runs is taken.
"""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

META = torch.device("meta")


@dataclass(frozen=True, slots=True)
class Inputs:
    """Arguments for one call of a model."""

    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()

    @staticmethod
    def of(example: Any) -> "Inputs":
        """Make inputs of what a user passes: a tensor, a tuple of positional or a dict of named arguments."""
        if isinstance(example, Inputs):
            return example
        if isinstance(example, dict) or hasattr(example, "keys"):
            return Inputs(kwargs=tuple((name, example[name]) for name in example.keys()))  # noqa: SIM118 (BatchEncoding)
        if isinstance(example, (tuple, list)):
            return Inputs(args=tuple(example))
        return Inputs(args=(example,))

    def __str__(self) -> str:
        texts = [_shape_text(value) for value in self.args]
        texts += [f"{name}={_shape_text(value)}" for name, value in self.kwargs]
        return ", ".join(texts)


def _shape_text(value: Any) -> str:
    if isinstance(value, Tensor):
        dtype = "" if value.is_floating_point() else str(value.dtype).removeprefix("torch.") + ":"
        return dtype + "x".join(map(str, value.shape))
    return repr(value)


def candidates(model: nn.Module) -> Iterator[Inputs]:
    """Guess example inputs of a model: the likeliest first, in the model's own floating-point type."""
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    for source in (_hugging_face, _declared, _from_layers):
        for inputs in source(model):
            args = tuple(_cast(value, dtype) for value in inputs.args)
            yield Inputs(args, tuple((name, _cast(value, dtype)) for name, value in inputs.kwargs))


def _cast(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value


def _hugging_face(model: nn.Module) -> Iterator[Inputs]:
    config = getattr(model, "config", None)
    main = getattr(model, "main_input_name", None)
    if config is None or not isinstance(main, str):
        return
    parameters = inspect.signature(model.forward).parameters
    extra: dict[str, Any] = {"use_cache": False} if "use_cache" in parameters else {}
    for length in (16, 32, 64, 128, 5):
        kwargs = _hugging_face_inputs(config, main, parameters, length)
        if kwargs is None:
            return
        yield Inputs(kwargs=tuple({**kwargs, **extra}.items()))


def _hugging_face_inputs(config: Any, main: str, parameters: Any, length: int) -> dict[str, Tensor] | None:
    text = getattr(config, "text_config", config)
    limit = getattr(text, "max_position_embeddings", None) or getattr(text, "n_positions", None) or length
    tokens = _tokens(1, min(length, int(limit)) if int(limit) > 0 else length)
    inputs: dict[str, Tensor] = {}
    if main == "pixel_values" or ("pixel_values" in parameters and "input_ids" in parameters):
        vision = getattr(config, "vision_config", config)
        size = getattr(vision, "image_size", None) or getattr(vision, "input_size", None) or 224
        height, width = (size, size) if isinstance(size, int) else tuple(size)[-2:]
        inputs["pixel_values"] = _floats(
            1, int(getattr(vision, "num_channels", None) or 3), int(height), int(width)
        )
    if (
        main == "input_ids"
        or ("input_ids" in parameters and main != "pixel_values")
        or ("pixel_values" in inputs and "input_ids" in parameters)
    ):
        inputs["input_ids"] = tokens
    if main == "input_values":
        inputs[main] = _floats(1, 16_000 if length == 16 else 1_000 * length)
    if main == "input_features":
        bins = getattr(config, "num_mel_bins", None) or getattr(config, "feature_size", None) or 80
        frames = 2 * int(getattr(config, "max_source_positions", None) or 1_500)
        inputs[main] = _floats(1, int(bins), frames)
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in parameters:
        inputs["decoder_input_ids"] = tokens
    return inputs if main in inputs else None


def _declared(model: nn.Module) -> Iterator[Inputs]:
    for name in ("pretrained_cfg", "default_cfg"):
        declared = getattr(model, name, None)
        size = declared.get("input_size") if isinstance(declared, dict) else None
        size = size or getattr(declared, "input_size", None)
        if isinstance(size, (tuple, list)):
            yield Inputs((_floats(1, *size),))
    size = getattr(model, "in_size", None)
    if isinstance(size, (tuple, list)) and all(isinstance(extent, int) for extent in size):
        for channels in dict.fromkeys((getattr(model, "in_channels", None), _first_channels(model), 3)):
            if isinstance(channels, int):
                yield Inputs((_floats(1, channels, *size),))


def _first_channels(model: nn.Module) -> int | None:
    first = next((m for m in model.modules() if isinstance(m, (nn.Conv1d, nn.Conv2d, nn.Conv3d))), None)
    return first.in_channels if first is not None else None


def _from_layers(model: nn.Module) -> Iterator[Inputs]:
    """Guess example inputs from the shapes of the first layers, in the order they were registered."""
    wanted = _required(model)
    tried: set[str] = set()
    for module in model.modules():
        for example in _for_layer(module):
            inputs = Inputs((example,) * wanted)
            if str(inputs) not in tried:
                tried.add(str(inputs))
                yield inputs
        if len(tried) >= 24:
            return


def _required(model: nn.Module) -> int:
    """The number of arguments that the forward method requires."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(model.forward).parameters.values()
    return max(1, sum(p.kind in kinds and p.default is inspect.Parameter.empty for p in parameters))


def _for_layer(module: nn.Module) -> list[Tensor]:
    match module:
        case nn.Conv2d() | nn.ConvTranspose2d():
            return [_floats(1, module.in_channels, size, size) for size in (32, 224, 64, 28, 128, 299, 512)]
        case nn.Conv1d() | nn.ConvTranspose1d():
            return [_floats(1, module.in_channels, size) for size in (128, 1_024, 16_000)]
        case nn.Conv3d() | nn.ConvTranspose3d():
            return [_floats(1, module.in_channels, 16, size, size) for size in (32, 112)]
        case nn.Linear():
            return [
                _floats(1, module.in_features),
                _floats(1, 16, module.in_features),
                *_squares(module.in_features),
            ]
        case nn.Embedding() | nn.EmbeddingBag():
            return [_tokens(1, 16), _tokens(16)]
        case nn.RNNBase():
            return [_floats(1, 16, module.input_size)]
        case nn.MultiheadAttention():
            return [_floats(1, 16, module.embed_dim)]
        case nn.LayerNorm():
            return [_floats(1, 16, *module.normalized_shape)]
        case nn.BatchNorm1d():
            return [_floats(2, module.num_features)]
        case nn.BatchNorm2d() | nn.GroupNorm() | nn.InstanceNorm2d():
            channels = module.num_channels if isinstance(module, nn.GroupNorm) else module.num_features
            return [_floats(1, channels, 32, 32)]
        case _:
            return []


def _squares(features: int) -> list[Tensor]:
    """Images that a flatten would turn into so many features."""
    shapes = ((channels, round((features / channels) ** 0.5)) for channels in (1, 3))
    return [_floats(1, c, side, side) for c, side in shapes if side > 1 and c * side * side == features]


def _floats(*shape: int) -> Tensor:
    return torch.empty(shape, device=META)


def _tokens(*shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.int64, device=META)
