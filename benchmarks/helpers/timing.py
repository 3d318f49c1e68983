"""How long does a call take at best?"""

import time
from collections.abc import Callable
from typing import Any


def fastest(function: Callable[[], Any], repeats: int) -> float:
    """Seconds of the fastest of several calls."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return min(times)
