"""How many lines can a stranger write into the log?"""

import logging

import pytest

from modelkeeper.server.sparing_log import Sparing


def _record(text: str = "%s", *args: object) -> logging.LogRecord:
    return logging.LogRecord("x", logging.INFO, __file__, 1, text, args, None)


def test_a_few_lines_and_how_many_more(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("modelkeeper.server.sparing_log.time.monotonic", lambda: now[0])
    spared = Sparing(lines=3, seconds=10.0)
    assert [spared.filter(_record("%s", number)) for number in range(2000)].count(True) == 3
    now[0] += 11
    last = _record("refused %s", "10.0.0.1")
    assert spared.filter(last)
    assert last.getMessage() == "1,997 lines like this were left out; refused 10.0.0.1"
