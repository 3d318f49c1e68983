"""Maps of a parent that are larger or smaller than those of its child."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from modelkeeper.frontends.calibrating.side_by_side import resized


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_smaller_maps_are_means_over_areas(height: int, width: int, size: int) -> None:
    maps = torch.randn(2, 3, height, width)
    wanted = nn.functional.adaptive_avg_pool2d(maps, (size, size))
    np.testing.assert_allclose(resized(maps.numpy(), (size, size)), wanted.numpy(), atol=1e-6)
