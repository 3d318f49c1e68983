"""Is anything called exact that is not? Pairs of PyTorch models that differ in what weights do not show."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from modelkeeper import transfer

Function = Callable[[Tensor], Tensor]


class Applied(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.first, self.last, self.function = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 5, 1), function

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.function(self.first(x)))


def resized(corners: bool) -> Function:
    return lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=corners)


PAIRS: dict[str, tuple[Function, Function]] = {
    "corners": (resized(True), resized(False)),
    "at least, at most": (lambda x: x.clamp(min=0.2), lambda x: x.clamp(max=0.2)),
    "largest, smallest": (lambda x: x.topk(3, 2)[0], lambda x: x.topk(3, 2, largest=False)[0]),
}


@pytest.mark.parametrize("name", PAIRS)
def test_what_differs_is_not_promised_and_what_is_the_same_is(name: str) -> None:
    one, other = PAIRS[name]
    images = torch.randn(1, 3, 6, 6)
    assert not transfer(Applied(one), Applied(other), images).exact
    assert not transfer(Applied(other), Applied(one), images).exact
    assert transfer(Applied(one), Applied(one), images).exact
