"""Do two processes, the programs under examples/ and docs/integrations/huggingface.md run as they should?"""

import os
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from modelkeeper import ModelKeeperClient  # noqa: E402
from modelkeeper.integrations.huggingface import WarmStart  # noqa: E402
from tests.helpers.hugging_face import arguments, bert, trainer  # noqa: E402
from tests.helpers.processes import run  # noqa: E402

ROOT = Path(__file__).parents[3]
PAGE = "docs/integrations/huggingface.md"


def program(name: str) -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name=name)


def trained_together(folder: str) -> tuple[list[bool], Any]:
    """Trainings in one of two processes: how they started, and the weights of the last one."""
    os.environ |= {name: str(torch.distributed.get_rank()) for name in ("RANK", "LOCAL_RANK")}
    os.environ |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    warm = WarmStart(f"{folder}/zoo", {"data": "rows"})
    for width in (16, 24):
        model = bert(width)
        runs = trainer(model, arguments(Path(folder), num_train_epochs=1, ddp_backend="gloo"), warm)
        assert runs.args.world_size == 2
        runs.train()
    loop = program("accelerate_loop")
    with ModelKeeperClient(f"{folder}/zoo") as client:
        told = [loop["train"](client, width, 1) for width in (8, 12)]
    starts = [answer.cold for answer in warm.answers] + ["cold" in text for text in told]
    return starts, model.bert.pooler.dense.weight.detach().numpy().copy()


@pytest.mark.slow
def test_two_processes_ask_once_start_equal_and_register_once(tmp_path: Path) -> None:
    (starts, weights), (others, same) = run(trained_together, tmp_path, str(tmp_path))
    assert starts == others == [True, False, True, False]
    assert (weights == same).all()
    with ModelKeeperClient(tmp_path / "zoo") as client:
        assert client.coordinator.count() == 4


def test_the_programs_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    program("accelerate_loop")["main"](["--epochs", "1"])
    program("huggingface_trainer")["main"](["--epochs", "1", "--zoo", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(",")[0] for line in lines[:2]] == ["width 32: cold", "width 48: warm"]
    assert [line.partition(":")[0] for line in lines[-2:]] == ["cold", "warm"]


def test_the_page_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # its first zoo
    torch.manual_seed(0)
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / PAGE).read_text(), re.DOTALL | re.MULTILINE)
    space: dict[str, Any] = {"__name__": "__main__"}
    assert len(blocks) == 5
    for block in blocks:
        shown = re.findall(r"# -> (.*)", block)
        exec(compile(block, PAGE, "exec"), space)
        printed = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("{")]
        assert printed == shown
