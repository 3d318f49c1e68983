"""Lines between rows: they run from every parent to every child, and never through another row."""

from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.server.ui.lanes import draw, lanes


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


@given(families(), st.integers(1, 3))
def test_no_more_lines_run_side_by_side_than_may(parents: dict[str, list[str]], most: int) -> None:
    """Law: lines that are drawn lead where they should; those that are not are counted, and no others."""
    rows = draw(list(parents), parents, most)
    followed: dict[int, set[str]] = {}
    drawn = set()
    for row in rows:
        assert row.width <= most + 1
        assert {at for at, _ in row.above} == set(followed)
        drawn |= {(origin, row.id) for at in lanes(row.into) for origin in followed[at]}
        followed = {at: followed[at] for at in lanes(row.through)}
        for at in lanes(row.out):
            followed[at] = followed.get(at, set()) | {row.id}
    edges = {(parent, child) for child, some in parents.items() for parent in some if parent in parents}
    assert drawn <= edges
    assert len(edges) - len(drawn) == sum(row.left_out for row in rows)


def test_a_shortcut_runs_beside_what_it_goes_around() -> None:
    parents = {"a": [], "b": ["a"], "c": ["b"], "sum": ["c", "a"], "d": ["sum"]}
    rows = draw(list(parents), parents)
    assert [row.lane for row in rows] == [0, 0, 0, 0, 0]
    assert [row.through for row in rows] == [0, 0b10, 0b10, 0, 0]
    assert (rows[0].out, rows[3].into) == (0b11, 0b11)


def test_thousands_of_rows_take_thousands_of_steps() -> None:
    """Many lines at once cost no more than few: what is counted is how often a row is looked up."""

    class Counting(dict[int, list[int]]):
        asked = 0

        def __getitem__(self, key: int) -> list[int]:
            Counting.asked += 1
            return super().__getitem__(key)

    parents = Counting({row: [row - step for step in (1, 2, 40) if row >= step] for row in range(5000)})
    rows = draw(range(5000), parents, 8)
    assert len(rows) == Counting.asked == 5000
    assert max(row.width for row in rows) <= 9
    assert sum(row.left_out for row in rows) > 0
