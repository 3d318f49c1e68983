"""Is what comes into a log one clean line, whatever it says?"""

import logging

import pytest

from modelkeeper.logs import Cleaning, logger

EVIL = "\x1b[31mred\r\nfake line\u202e"


def test_messages_arguments_and_tracebacks(caplog: pytest.LogCaptureFixture) -> None:
    log = logger("modelkeeper.tests")
    caplog.handler.setFormatter(logging.Formatter("%(message)s"))
    log.warning("about %s", EVIL)
    log.warning(EVIL)
    try:
        raise ValueError(EVIL)
    except ValueError:
        log.exception("it failed: %s", EVIL)
    assert "\x1b" not in caplog.text
    assert "\u202e" not in caplog.text
    lines = caplog.text.splitlines()
    assert [line for line in lines if line.startswith("fake line")] == lines[-1:], "only within the traceback"
    assert lines[0].startswith("about \N{REPLACEMENT CHARACTER}[31mred fake line")


def test_a_logger_cleans_once() -> None:
    assert logger("modelkeeper.tests") is logger("modelkeeper.tests")
    assert sum(isinstance(each, Cleaning) for each in logger("modelkeeper.tests").filters) == 1
