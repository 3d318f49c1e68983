"""The calls of a trainable, outside of Ray: what do they do to a model, and to the zoo?"""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("ray")

from modelkeeper.errors import InvalidMeta
from modelkeeper.integrations.ray import finish, process, report, warm_start
from tests.helpers.ray_trials import META, net


@pytest.fixture(autouse=True)
def nothing_open() -> Iterator[None]:
    yield
    process.end(finished=False)


def test_a_training_outside_of_ray(tmp_path: Path) -> None:
    for accuracy, cold in ((0.5, True), (0.6, False)):
        model = net(4)
        answer = warm_start(model, META, client=tmp_path)
        assert answer is not None
        assert answer.cold == cold
        report({"accuracy": accuracy, "loss": 0.1}, model)
        report({"accuracy": accuracy / 2}, model)
        record = finish()
        assert record is not None
        assert (record.value, record.finished, bool(record.parent)) == (accuracy, True, not cold)
    assert finish() is None


def test_the_next_training_ends_the_one_before(tmp_path: Path) -> None:
    model = net(4)
    warm_start(model, META, client=tmp_path)
    report({"accuracy": 0.5}, model)
    warm_start(net(6), META, client=tmp_path)
    other = process._open
    assert other is not None
    (record,) = other.warm.client.coordinator.models()
    assert (record.value, record.finished) == (0.5, False)


def test_what_cannot_be_so_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidMeta, match="did you mean"):
        warm_start(net(4), {"dat": "x"}, client=tmp_path)


def test_without_a_warm_start_a_report_is_kept_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELKEEPER_URI", str(tmp_path))
    report({"accuracy": 0.5})
    assert process._open is None
    report({"accuracy": 0.5}, net(4))
    record = finish()
    assert record is not None
    assert (record.value, record.parent) == (0.5, "")


def test_the_clock_counts_what_a_warm_start_need_not_train(tmp_path: Path) -> None:
    try:
        for expected in (1.0, 7.0):  # of 8, a quarter is left to train
            process.expect(process.Sent(tmp_path, META, longest=8.0))
            model = net(4)
            warm_start(model)
            report({"accuracy": 0.5}, model)
            assert process.start_of()["modelkeeper"]["time"] == expected
            finish()
    finally:
        process.expect(process.Sent(told=False))
