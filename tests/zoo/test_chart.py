"""The map of a zoo for whoever may see what: one point for each architecture, its best model, lines."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.settings import Settings
from modelkeeper.zoo import chart as charts
from modelkeeper.zoo.chart import Chart, Survey, _names_of_families, _short, _words
from modelkeeper.zoo.records import Filter, Record, Viewer
from tests.helpers.dashboards import fill_hostile
from tests.helpers.generated import resnet, vgg
from tests.helpers.zoos import register

NARROW, WIDE, OTHER = vgg((8, 16)), vgg((12, 24)), resnet((1, 1), 8)


def survey(local: LocalCoordinator, before: Survey | None = None) -> Survey:
    found = local.survey(before, stop=lambda: False, late=lambda: False)
    assert found is not None
    return found


def seen(local: LocalCoordinator, viewer: Viewer | None = None) -> Chart:
    return local.chart(survey(local), viewer)


def by_name(chart: Chart) -> dict[str, dict[str, Any]]:
    """What is said of each point, by the name of its best model."""
    columns = ("x", "y", "id", "models", "rank", "value", "metric", "task", "data", "framework", "family")
    return {
        name: {column: getattr(chart, column)[place] for column in columns}
        for place, name in enumerate(chart.name)
    }


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalCoordinator]:
    coordinator = LocalCoordinator(Settings(home=str(tmp_path / "zoo"), minimum_peers=10**6))
    yield coordinator
    coordinator.close()


def family(local: LocalCoordinator) -> dict[str, Record]:
    first = register(local, NARROW, "narrow-1", 0.8)
    twin = register(local, NARROW, "narrow-2", 0.85, parent=[first.id])
    wide = register(local, WIDE, "wide", 0.9, parent=[first.id, twin.id])
    other = register(local, OTHER, "other", 0.7, parent=[wide.id])
    return {record.name: record for record in (first, twin, wide, other)}


def test_an_architecture_is_one_point_with_its_best_model(local: LocalCoordinator) -> None:
    records = family(local)
    chart = seen(local)
    points = by_name(chart)
    assert set(points) == {"narrow-2", "wide", "other"}
    assert {name: point["models"] for name, point in points.items()} == {"narrow-2": 2, "wide": 1, "other": 1}
    assert {name: point["rank"] for name, point in points.items()} == {
        "narrow-2": 67,
        "wide": 100,
        "other": 0,
    }
    assert points["wide"]["id"] == records["wide"].id
    assert (points["wide"]["value"], chart.metrics, chart.tasks) == (0.9, ["accuracy"], ["classification"])
    names = [(chart.name[child], chart.name[parent]) for child, parent in chart.lines]
    assert sorted(names) == [("other", "wide"), ("wide", "narrow-2")]  # of twins there is none to itself
    assert (chart.state, chart.cut) == ("ready", False)


def test_lower_is_better_where_it_is(local: LocalCoordinator) -> None:
    for name, graph, loss in (("a", NARROW, 0.5), ("b", WIDE, 0.1), ("c", OTHER, 0.5)):
        register(local, graph, name, task="t", metrics={"loss": loss})
    register(local, vgg((4, 4)), "alone", task="another")
    assert {name: point["rank"] for name, point in by_name(seen(local)).items()} == {
        "a": 25,  # the two that are the same share what both have
        "c": 25,
        "b": 100,
        "alone": -1,
    }


def test_nobody_is_told_of_what_they_may_not_see(local: LocalCoordinator) -> None:
    """Law: for any viewer the points are the architectures of just the models that they may list."""
    own: dict[str, Any] = {"owner": "ada", "owner_id": "a" * 16}
    secret = register(local, NARROW, "secret", 0.99, visibility="private", **own)
    register(local, NARROW, "open", 0.8)
    register(local, WIDE, "hidden", 0.9, visibility="private", parent=[secret.id], **own)
    shown = register(local, OTHER, "published", 0.7, licence="MIT", parent=[secret.id], **own)
    local.publish(shown.id)
    found = survey(local)
    viewers = (None, Viewer("", all=True), Viewer("a" * 16), Viewer("b" * 16), Viewer("", partner=True))
    names = []
    for viewer in viewers:
        chart = local.chart(found, viewer)
        listed = local.models(Filter(viewer=viewer))
        assert sum(chart.models) == len(listed)
        assert len(chart.x) == len({record.fingerprint for record in listed})
        assert set(chart.name) <= {record.name for record in listed}
        assert "secret" not in msgspec.json.encode(chart).decode() or "secret" in chart.name
        names.append(set(chart.name))
    assert names[2] == {"secret", "hidden", "published"}
    assert names[3] == {"open", "published"}
    assert names[4] == {"published"}
    assert local.chart(found, viewers[3]).lines == []
    assert len(local.chart(found, None).lines) == 2


def test_an_old_map_shows_nothing_that_is_gone(local: LocalCoordinator) -> None:
    records = family(local)
    found = survey(local)
    assert survey(local, found) is found  # nothing has changed
    local.remove(records["other"].id)
    assert set(local.chart(found, None).name) == {"narrow-2", "wide"}
    register(local, vgg((4, 4, 4)), "new")
    assert set(local.chart(found, None).name) == {"narrow-2", "wide"}
    later = survey(local, found)
    assert set(local.chart(later, None).name) == {"narrow-2", "wide", "new"}


def test_a_part_of_the_map_is_a_part_of_the_table(local: LocalCoordinator) -> None:
    family(local)
    found = survey(local)
    x, y = found.landscape.points[found.landscape.place(local.show("wide").fingerprint)]
    chosen = found.landscape.within(x - 1e-6, y - 1e-6, x + 1e-6, y + 1e-6)
    wanted = Filter(fingerprints=chosen)
    assert [record.name for record in local.models(wanted)] == ["wide"]
    assert local.count(wanted) == 1
    assert local.count(Filter(fingerprints=())) == 0
    assert local.count(Filter(fingerprints=(*found.landscape.fingerprints, *("00" * 16,) * 19_000))) == 4
    with pytest.raises(ValueError, match="no fingerprints"):
        local.zoo.follower.columns.mask(wanted)


def test_empty_one_and_hostile_zoos(local: LocalCoordinator) -> None:
    assert seen(local).x == []
    register(local, NARROW, "only")
    assert (seen(local).x, seen(local).rank) == ([0], [-1])
    fill_hostile(local)
    chart = seen(local)
    assert len(chart.x) == 10  # one of them is as the only one was
    assert all(len(text.encode()) <= charts.SHORT for text in (*chart.name, *chart.tasks, *chart.data_sets))
    assert len(chart.lines) == 17


def test_it_stays_small(local: LocalCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    family(local)
    monkeypatch.setattr(charts, "MOST_DRAWN", 1)
    assert (len(seen(local).lines), seen(local).cut) == (1, True)
    assert _words(["b", "a", "b"]) == ([0, 1, 0], ["b", "a"])
    monkeypatch.setattr(charts, "MOST_WORDS", 1)
    assert _words(["b", "a", "b"]) == ([0, -1, 0], ["b"])
    assert _short("\u00e4" * 40) == "\u00e4" * 14 + "…"


def test_families_are_called_as_their_models_begin() -> None:
    assert _names_of_families([1, 0, 0, 2, 1, 1], ["ResNet18", "vgg", "vgg-2", "99", "resnet50", "x"]) == {
        1: "resnet",
        0: "vgg",
        2: "nameless",
    }
    assert _names_of_families([0, 1], ["a1", "a2"]) == {0: "a", 1: "a 2"}
