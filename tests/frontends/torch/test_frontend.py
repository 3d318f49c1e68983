"""Models that training tools wrap, copy, compile, cast or parametrise keep their names and start warm."""

import copy
import pickle
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.optim.swa_utils import AveragedModel

from modelkeeper import ModelKeeperClient
from modelkeeper.frontends.torch.frontend import FRONTEND


class MyNet(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, width), nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(x)))


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    torch.distributed.init_process_group("gloo", f"file://{tmp_path}/group", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


WRAPPED: dict[str, Callable[[nn.Module], nn.Module]] = {
    "nothing": lambda model: model,
    "parallel": nn.DataParallel,
    "distributed": nn.parallel.DistributedDataParallel,
    "compiled": lambda model: nn.Module.__call__(nn.Identity(), torch.compile(model, backend="eager")),
    "copied": copy.deepcopy,
    "pickled": lambda model: pickle.loads(pickle.dumps(model)),
    "averaged": AveragedModel,
    "copied, averaged, compiled, distributed": lambda model: nn.parallel.DistributedDataParallel(
        torch.compile(AveragedModel(copy.deepcopy(model)), backend="eager")
    ),
}


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("how", WRAPPED)
def test_a_model_that_is_wrapped_or_copied_after_its_query_keeps_its_name_and_lineage(
    how: str, tmp_path: Path
) -> None:
    with ModelKeeperClient(tmp_path / "zoo", on_error="raise") as client:
        parent = client.register_model(MyNet(), {"accuracy": 0.5})
        assert parent is not None
        model, answer = client.query_for_model(MyNet(12))
        assert answer.parent == parent.id
        names = list(model.state_dict())
        wrapped = WRAPPED[how](model)
        wrapped(torch.ones(2, 4))
        record = client.register_model(wrapped, {"accuracy": 0.6})
    assert record is not None
    assert (record.name, record.parent, record.similarity) == ("MyNet", parent.id, answer.similarity)
    assert list(model.state_dict()) == names
    assert dict(FRONTEND.read(wrapped)).keys() == set(names)


def test_a_copy_of_a_model_has_no_lineage_in_another_zoo() -> None:
    with ModelKeeperClient(":memory:") as client, ModelKeeperClient(":memory:") as other:
        client.register_model(MyNet(), {"accuracy": 0.5})
        model, answer = client.query_for_model(MyNet(12))
        assert not answer.cold
        record = other.register_model(copy.deepcopy(model), {"accuracy": 0.6})
        assert record is not None
        assert not record.parent


def test_what_others_wrote_on_a_model_is_no_mark() -> None:
    model = MyNet()
    assert FRONTEND.mark_of(model) == ()
    model.__dict__["_modelkeeper"] = [1, 2]
    assert FRONTEND.mark_of(model) == ()


# -- as people train them ---------------------------------------------------------------------------


def has_compiler() -> bool:
    """Can torch.compile build what it writes?"""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        return bool(get_cpp_compiler()) and (Path(sysconfig.get_path("include")) / "Python.h").exists()
    except InvalidCxxCompiler:
        return False


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.compile imports deprecated parts of torch
def test_compiled_code_that_ran_before_its_query_runs_with_what_was_lent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_compiler():
        pytest.skip("there is no C++ compiler for torch.compile")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))
    quick: dict[str, str | int | bool | Callable[..., object]] = {
        "compile_threads": 1,
        "cpp_cache_precompile_headers": False,
        "cpp.simdlen": 1,
    }
    given, parent = torch.randn(3, 4), MyNet()
    model = torch.compile(MyNet(12), options=quick)
    with torch.no_grad(), ModelKeeperClient(":memory:", on_error="raise") as client:
        before = model(given)
        client.register_model(parent, {"accuracy": 0.5})
        _, answer = client.query_for_model(model)
        assert answer.exact
        assert not torch.allclose(model(given), before)
        torch.testing.assert_close(model(given), parent(given))
        record = client.register_model(model, {"accuracy": 0.6})
    assert record is not None
    assert (record.name, record.parent) == ("MyNet", answer.parent)


def images(width: int, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    layers = nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width, 3)).to(dtype).eval()


@pytest.mark.parametrize("child_dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("width", [8, 12])
def test_models_in_bfloat16_lend_and_borrow(width: int, child_dtype: torch.dtype) -> None:
    parent, child, given = images(8, torch.bfloat16), images(width, child_dtype), torch.randn(2, 3, 6, 6)
    with torch.no_grad(), ModelKeeperClient(":memory:", on_error="raise") as client:
        client.register_model(parent, {"accuracy": 0.5})
        _, answer = client.query_for_model(child)
        assert answer.exact
        assert {tensor.dtype for tensor in child.parameters()} == {child_dtype}
        assert torch.equal(child.state_dict()["0.weight"][:8].bfloat16(), parent.state_dict()["0.weight"])
        made = child(given.to(child_dtype)).bfloat16()
        torch.testing.assert_close(made, parent(given.bfloat16()), rtol=0.02, atol=0.02)
        assert client.register_model(child, {"accuracy": 0.6}) is not None


PARAMETRISED: Mapping[str, Callable[[nn.Linear], nn.Module]] = {
    "weight_norm": parametrizations.weight_norm,
    "weight_norm of the whole": lambda layer: parametrizations.weight_norm(layer, dim=None),  # type: ignore[arg-type]
    "spectral_norm": parametrizations.spectral_norm,
    "orthogonal": parametrizations.orthogonal,
}


@pytest.mark.parametrize("width", [8, 12])
@pytest.mark.parametrize("how", PARAMETRISED)
def test_parametrised_models_lend_and_nothing_is_called_exact_that_is_not(how: str, width: int) -> None:
    def made(size: int, change: Callable[[nn.Linear], nn.Module]) -> nn.Sequential:
        hidden = change(nn.Linear(6, size)), nn.ReLU(), change(nn.Linear(size, size)), nn.ReLU()
        return nn.Sequential(*hidden, nn.Linear(size, 3)).eval()

    given, parent = torch.randn(4, 6), made(8, PARAMETRISED[how])
    with torch.no_grad(), ModelKeeperClient(":memory:", on_error="raise") as client:
        client.register_model(parent, {"accuracy": 0.5})
        for change in PARAMETRISED[how], lambda layer: layer:
            child = made(width, change)
            _, answer = client.query_for_model(child, {"minimum_similarity": 0.0})
            assert answer.transferred > 50
            assert child(given).isfinite().all()
            if answer.exact:
                torch.testing.assert_close(child(given), parent(given))
            if width == 8:
                assert answer.exact == (change is PARAMETRISED[how])


def test_a_widened_weight_norm_computes_what_its_parent_computes() -> None:
    """New units have no length, but a direction: zero by zero would be NaN."""

    def made(size: int) -> nn.Sequential:
        hidden = (parametrizations.weight_norm(nn.Linear(6 if n == 0 else size, size)) for n in range(2))
        return nn.Sequential(next(hidden), nn.ReLU(), next(hidden), nn.ReLU(), nn.Linear(size, 3))

    given, parent, child = torch.randn(4, 6), made(8), made(12)
    with ModelKeeperClient(":memory:", on_error="raise") as client:
        client.register_model(parent, {"accuracy": 0.5})
        client.query_for_model(child, {"minimum_similarity": 0.0})
    torch.testing.assert_close(child(given), parent(given))
    child(given).square().sum().backward()
    assert all(tensor.grad is not None and tensor.grad.isfinite().all() for tensor in child.parameters())
