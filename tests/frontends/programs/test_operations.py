"""The table of operations says what PyTorch's own schemas say, and holds nothing that is unsafe."""

from typing import Any

import pytest
import torch

from modelkeeper.frontends.programs.operations import ALLOWED, Signature, signature

LEFT_OUT = {"layout", "device", "pin_memory", "memory_format", "non_blocking"}


def known(name: str) -> Signature:
    found = signature(name)
    assert found is not None
    return found


def schema(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload)._schema


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_an_operation_takes_and_gives_what_aten_says(name: str) -> None:
    arguments = [argument for argument in schema(name).arguments if argument.name not in LEFT_OUT]
    theirs = [
        (
            argument.name,
            "Tensor" in str(argument.type),
            "List" in str(argument.type),
            str(argument.type).startswith("Optional"),
            argument.has_default_value(),
            argument.default_value,
        )
        for argument in arguments
    ]
    ours = known(name)
    assert [(p.name, p.tensor, p.many, p.optional, p.given, p.default) for p in ours.parameters] == theirs
    returns = schema(name).returns
    assert ours.lists == (len(returns) == 1 and "List" in str(returns[0].type))
    assert ours.lists or ours.results == len(returns)
    assert ours.places == any(argument.name == "device" for argument in schema(name).arguments)
    assert not any(argument.alias_info and argument.alias_info.is_write for argument in arguments)


def test_what_is_not_on_the_list_has_no_signature() -> None:
    assert signature("bernoulli.default") is None
    assert signature("conv2d") is None


def test_arguments_go_by_their_names() -> None:
    convolution = known("conv2d.default")
    assert convolution.required == 2
    assert convolution.named(("x", "w")) == {"input": "x", "weight": "w"}
