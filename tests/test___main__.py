"""The command `modelkeeper` before it has begun."""

import sys
from types import ModuleType

import pytest

from modelkeeper.__main__ import main


def test_ctrl_c_while_the_command_line_is_imported_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "modelkeeper.cli", Interrupted("modelkeeper.cli"))
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == "Aborted!"
