"""How are the stride, padding and dilation of a window written, whoever gave them?

Frameworks have several ways to say one thing: a number for all axes, a number for each, "same". Here all of
them become the same text or attribute, so that two models that do the same are written alike:

    stride, dilation   a number for each axis the window slides over
    padding            likewise; or, where it is not the same at both ends, all beginnings and then all ends:
                       (0, 0, 1, 1) adds a row below and a column on the right
"""

from collections.abc import Sequence
from typing import Any

from modelkeeper.graph.structure import Attribute
from modelkeeper.tracing.trace import Step


def window_attributes(step: Step, rank: int) -> dict[str, Attribute]:
    """The attributes of a convolution over `rank` axes: those that are not as they mostly are."""
    attributes: dict[str, Attribute] = {}
    for key, default in (("stride", 1), ("padding", 0), ("dilation", 1), ("output_padding", 0)):
        value = _padding(step, rank) if key == "padding" else step.arguments.get(key, default)
        if isinstance(value, str):
            attributes[key] = value
            continue
        numbers = per_axis(value, rank)
        if set(numbers) != {default}:
            attributes[key] = numbers
    if step.arguments.get("groups", 1) != 1:
        attributes["groups"] = step.arguments["groups"]
    return attributes


def pool_scalars(step: Step) -> list[Any]:
    """What is written of a pooling: window, stride, padding, dilation, and how edges count.

    What is as it mostly is is left out at the end, and written in between.
    """
    given, rank = step.arguments, int(step.name.partition("_pool")[2][0])  # max_pool2d: two axes
    window = per_axis(given["kernel_size"], rank)
    padding = per_axis(given.get("padding", 0), rank)
    scalars: list[tuple[Any, Any]] = [  # each with what it mostly is
        (window, None),
        (per_axis(given.get("stride") or window, rank), None),
        (padding, (0,) * rank),
    ]
    if "dilation" in step.operation.arguments:
        scalars.append((per_axis(given.get("dilation", 1), rank), (1,) * rank))
    scalars.append((bool(given.get("ceil_mode", False)), False))
    if "count_include_pad" in step.operation.arguments:
        counts = given.get("count_include_pad", True) or not any(padding)
        scalars.append(("" if counts else "inside", ""))
        scalars.append((given.get("divisor_override"), None))
    while len(scalars) > 2 and scalars[-1][0] == scalars[-1][1]:
        scalars.pop()
    return [value for value, _ in scalars]


def _padding(step: Step, rank: int) -> Any:
    """The padding of a convolution in numbers: what is given in words depends on the kernel alone."""
    padding = step.arguments.get("padding", 0)
    if padding == "valid":
        return 0
    if padding != "same":
        return padding
    kernel = step.arguments["weight"].shape[2:]
    dilation = per_axis(step.arguments.get("dilation", 1), rank)
    both = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    return [total // 2 for total in both] + [total - total // 2 for total in both]


def per_axis(value: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """A number for each axis, or for both ends of each; a padding that is the same at both is given once."""
    numbers = (value,) if isinstance(value, int) else tuple(value)
    if len(numbers) == 1:
        return numbers * rank
    if len(numbers) == 2 * rank and numbers[:rank] == numbers[rank:]:
        return numbers[:rank]
    return numbers
