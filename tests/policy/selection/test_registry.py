"""The registry of policies: what is built in, what is added here or by packages, and what is broken."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import InvalidMeta, InvalidSetting
from modelkeeper.matching.similarity import BUCKETS
from modelkeeper.meta import Query, read_query
from modelkeeper.policy.selection import POLICIES, Candidate, Policy, policy, register
from modelkeeper.policy.selection.base import ALL_BUCKETS
from modelkeeper.settings import Settings
from tests.helpers import zoos


class Oldest(Policy):
    """Takes the oldest model that is similar enough, whatever it is worth."""

    name = "oldest"
    description = "the oldest"

    def rank(self, pool: Sequence[Candidate], data: str) -> list[Candidate]:
        return sorted(pool, key=lambda candidate: (candidate.created, candidate.id))

    def why_won(self, winner: Candidate, pool: Sequence[Candidate], data: str) -> str:
        return f"nobody is older among {len(pool)}"

    def why_lost(self, loser: Candidate, winner: Candidate, data: str) -> str:
        return f"younger than {winner.name}"

    def depth(self, models: int) -> int:
        return BUCKETS


class Careful(Oldest):
    """Wants to know what plans say, and expects little of parents that are not exact."""

    name = "careful"
    plans_first = True

    def benefit(self, candidate: Candidate, data: str) -> float:
        return 1.0 if candidate.exact else 0.1


OLDEST, CAREFUL = Oldest(), Careful()


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """No test leaves a policy behind."""
    yield
    for name in POLICIES.names():
        POLICIES.remove(name)
    assert POLICIES.names() == ("benefit", "buckets")


@pytest.fixture
def packages(clean: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose packages count as installed."""
    POLICIES.__dict__.pop("_installed", None)
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        yield tmp_path
    del POLICIES.__dict__["_installed"]  # others look again


@pytest.fixture
def coordinator() -> Iterator[LocalCoordinator]:
    opened = LocalCoordinator(Settings(home=":memory:"))
    yield opened
    opened.close()


def test_every_built_in_policy_is_what_it_is_called() -> None:
    for name in POLICIES.built_in:
        found = policy(name)
        assert found.name == name
        assert found.description
    assert ALL_BUCKETS == BUCKETS


def test_a_policy_that_was_added_chooses_and_its_words_are_in_the_answer(
    coordinator: LocalCoordinator,
) -> None:
    zoos.register(coordinator, zoos.net(8, 16), "first", 0.8)
    zoos.register(coordinator, zoos.net(8, 24), "second", 0.9)
    register(OLDEST)
    query = read_query({"data": zoos.DATA, "policy": "oldest"})
    answer = coordinator.query(zoos.net(8, 24), query, dry_run=True).answer
    assert (answer.parent_name, answer.reason) == ("first", "nobody is older among 2")
    assert [(rival.name, rival.why) for rival in answer.runners_up] == [("second", "younger than first")]
    usual = coordinator.query(zoos.net(8, 24), Query(data=zoos.DATA), dry_run=True).answer
    assert usual.parent_name == "second"


def test_a_policy_that_was_added_can_be_the_setting_of_a_zoo_and_ask_for_plans() -> None:
    register(CAREFUL)
    coordinator = LocalCoordinator(Settings(home=":memory:", policy="careful"))
    zoos.register(coordinator, zoos.net(4, 4), "unlike", 0.8)
    child = zoos.net(8, 24, 32)
    cold = coordinator.query(child, Query(data="other"), dry_run=True).answer
    assert cold.parent is None
    assert "expected benefit is 0.1 below 0.24 (similarity " in cold.reason
    zoos.register(coordinator, child, "same", 0.9)
    answer = coordinator.query(child, Query(data=zoos.DATA), dry_run=True).answer
    assert answer.exact is (answer.parent_name == "same")
    coordinator.close()


def test_a_name_that_nobody_knows_is_told_with_those_that_are_known(coordinator: LocalCoordinator) -> None:
    register(OLDEST)
    known = "choose one of benefit, buckets, oldest"
    with pytest.raises(InvalidSetting, match=known):
        Settings(policy="newest")
    with pytest.raises(InvalidMeta, match=known):
        read_query({"policy": "newest"})
    with pytest.raises(InvalidMeta, match=known):
        read_query({"policy": ["oldest"]})
    with pytest.raises(InvalidSetting, match=known):
        coordinator.query(zoos.net(8), Query(policy="newest"))


def test_what_is_built_in_cannot_be_replaced_and_what_was_added_can() -> None:
    class Mine(Oldest):
        name = "buckets"

    with pytest.raises(InvalidSetting, match="built in"):
        register(Mine())
    register(OLDEST)
    again = Oldest()
    register(again)
    assert policy("oldest") is again


def test_packages_add_policies_by_entry_points(
    packages: Path, caplog: pytest.LogCaptureFixture, coordinator: LocalCoordinator
) -> None:
    about = packages / "others-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    offered = f"oldest = {__name__}:OLDEST\nlost = no_such_package:POLICY\nwrong = builtins:dict\n"
    (about / "entry_points.txt").write_text(f"[{POLICIES.group}]\n{offered}")
    assert POLICIES.names() == ("benefit", "buckets", "lost", "oldest", "wrong")
    zoos.register(coordinator, zoos.net(8, 16), "first", 0.8)
    answer = coordinator.query(zoos.net(8, 16), Query(policy="oldest"), dry_run=True).answer
    assert answer.reason == "nobody is older among 1"
    for name, reason in {"lost": "No module named 'no_such_package'", "wrong": "type is no Policy"}.items():
        with pytest.raises(InvalidSetting, match=reason):
            coordinator.query(zoos.net(8, 16), Query(policy=name))
        assert reason in caplog.text
    assert coordinator.query(zoos.net(8, 16), Query(), dry_run=True).answer.parent_name == "first"


def test_names_and_settings_need_no_numpy() -> None:
    code = (
        "import sys; from modelkeeper.settings import Settings\n"
        "from modelkeeper.policy.selection import POLICIES\n"
        "Settings(policy='buckets'); POLICIES.names(); assert 'numpy' not in sys.modules, 'numpy'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
