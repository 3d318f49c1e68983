"""Lines of a lineage: they run from every parent to every child, and never through another model."""

from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.server.ui.lanes import draw


@st.composite
def families(draw_: st.DrawFn) -> dict[str, list[str]]:
    """Models with up to three parents each among those before them, or from outside."""
    parents: dict[str, list[str]] = {}
    for number in range(draw_(st.integers(1, 14))):
        known = [*parents, "elsewhere"]
        parents[f"m{number}"] = draw_(st.lists(st.sampled_from(known), max_size=3))
    return parents


@given(families())
def test_following_the_lines_gives_the_parents(parents: dict[str, list[str]]) -> None:
    """Law: the lines that reach a model come from just its parents, and rows fit at their edges."""
    rows = draw(list(parents), parents)
    assert [row.id for row in rows] == list(parents)
    carried: dict[int, set[str]] = {}  # of each lane, the models whose lines are in it
    for row in rows:
        assert {at for at, _ in row.above} == set(carried)
        reached = {origin for at, to in row.above if to == row.lane for origin in carried[at]}
        through = {at: carried[at] for at, to in row.above if to != row.lane}
        assert all(at == to for at, to in row.above if to != row.lane)
        assert reached == {parent for parent in parents[row.id] if parent in parents}
        carried = {at: set(origins) for at, origins in through.items()}
        for at, to in row.below:
            assert at == to or at == row.lane
            if at == row.lane and at not in through:
                carried.setdefault(to, set()).add(row.id)
        assert max([row.lane, *carried, *(at for at, _ in row.above)]) < row.width
    assert carried == {}


def test_a_line_of_models_takes_one_lane() -> None:
    rows = draw(["a", "b", "c"], {"a": [], "b": ["a"], "c": ["b"]})
    assert {row.width for row in rows} == {1}
