"""All tensors are there before the first is written, in bounded memory."""

import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks import large
from modelkeeper import transfer
from modelkeeper.layouts import Laid, Layout
from modelkeeper.warmstart import holding
from modelkeeper.warmstart.holding import held
from modelkeeper.weights import Array, Header, open_file, stream

EACH = 2**20


def made(count: int, dtype: Any = np.float32) -> Iterator[tuple[str, Array]]:
    for number in range(count):
        yield f"t{number}", np.full((EACH // np.dtype(dtype).itemsize // 4, 4), number, dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float16])
def test_what_does_not_fit_into_memory_waits_in_a_file(dtype: Any) -> None:
    tracemalloc.start()
    weights = held(made(20, dtype), 3 * EACH)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5.5 * EACH
    assert list(weights) == [f"t{number}" for number in range(20)]
    for number, array in enumerate(weights.values()):
        assert array.dtype == dtype
        assert (array == number).all()
        array[:] = -1  # whoever gets it may write to it


def test_what_lies_elsewhere_stays_there(tmp_path: Path) -> None:
    arrays = dict(made(3))
    header = Header.of((name, "float32", array.shape) for name, array in arrays.items())
    (tmp_path / "w").write_bytes(b"".join(map(bytes, stream(header, arrays.items()))))
    mapped, tensor = open_file(tmp_path / "w"), torch.ones(EACH)
    lent = [*mapped.items(), ("tensor", tensor.numpy()[:-1])]
    weights = held(iter(lent), 0)
    assert all(np.shares_memory(weights[name], array) for name, array in lent)


def test_layouts_stay() -> None:
    layout = Layout.moved((256, 512), (1, 0))
    array = np.arange(256 * 512, dtype=np.float32).reshape(256, 512)
    lent: list[tuple[str, Array | Laid]] = [("a", Laid(array.copy(), layout)), ("b", array.T.copy())]
    weights = held(iter(lent), 0)
    laid = weights["a"]
    assert isinstance(laid, Laid)
    assert laid.layout == layout
    np.testing.assert_array_equal(laid.array, array)
    np.testing.assert_array_equal(np.asarray(laid), array.T)
    np.testing.assert_array_equal(np.asarray(weights["b"]), array.T)


def test_without_room_for_a_file_all_waits_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    wrote: list[int] = []

    class Full:
        def seek(self, place: int) -> None: ...
        def write(self, data: memoryview) -> int:
            wrote.append(len(data))
            raise OSError(28, "No space left on device")

        def close(self) -> None: ...

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: Full())
    weights = held(made(4), EACH)
    assert [array[0, 0] for array in weights.values()] == [0, 1, 2, 3]
    assert len(wrote) == 1


def test_what_fails_on_the_way_is_raised_before_anything_is_handed_out() -> None:
    def broken() -> Iterator[tuple[str, Array]]:
        yield from made(3)
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="gone"):
        held(broken(), 0)


def test_a_transfer_that_widens_does_not_hold_the_model_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "IN_MEMORY", 2 * EACH)

    def net(width: int) -> nn.Sequential:
        layers = [part for _ in range(6) for part in (nn.Linear(width, width), nn.ReLU())]
        return nn.Sequential(nn.Linear(8, width), nn.ReLU(), *layers, nn.Linear(width, 4))

    transfer(net(8), net(12), torch.zeros(1, 8))  # imports what is needed
    source, target = net(768), net(1024)  # the target has 24 MiB
    tracemalloc.start()
    report = transfer(source, target, torch.zeros(1, 8))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert report.exact
    assert peak < 14 * EACH
    inputs = torch.randn(3, 8)
    torch.testing.assert_close(target(inputs), source(inputs), rtol=1e-4, atol=1e-5)


def test_the_benchmark_of_large_models_measures_what_it_says() -> None:
    """Its models differ by the width of their MLPs alone, and its ratios are those of equal bytes."""
    model, wider, same = large.build(0.0003), large.build(0.0003, large.WIDER), large.build(0.0003)
    shapes, others = (
        {name: tensor.shape for name, tensor in built.state_dict().items()} for built in (model, wider)
    )
    assert shapes.keys() == others.keys()
    assert {name.split(".")[-3] for name in shapes if shapes[name] != others[name]} == {"mlp"}
    for tensor, again in zip(model.parameters(), same.parameters(), strict=True):
        assert tensor.dtype == torch.bfloat16
        assert torch.equal(tensor, again)
        assert tensor.isfinite().all()
    size = large.size_of(model)
    assert size == sum(2 * tensor.numel() for tensor in model.parameters())
    assert large.size_of(large.build(0.0003, device="meta")) == size
    assert abs(sum(tensor.numel() for tensor in model.parameters()) / 0.0003e9 - 1) < 0.2

    found = large.measured(lambda: model, lambda given: given.requires_grad_(False))
    assert found["bytes"] == size
    assert found["seconds"] > 0
    stages = {
        "save": {"seconds": 4.0, "bytes": 8e9, "peak": 1.0},
        "load": {"seconds": 2.0, "bytes": 8e9, "peak": 1.0},
        "register": {"seconds": 8.0, "bytes": 8e9, "peak": 1.0014},
        "http query wide": {"seconds": 5.0, "bytes": 10e9, "peak": 1.05},
    }
    ratios = large.compared(stages)
    assert {name: stage["throughput"] for name, stage in ratios.items()} == {
        "save": 1.0,
        "load": 1.0,
        "register": 0.5,
        "http query wide": 0.5,
    }
    assert ratios["register"]["peak"] == 1.001
    assert set(stages) <= {*large.LOCAL, *large.REMOTE}
