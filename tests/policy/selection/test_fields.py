"""Many candidates in arrays are what they are one by one, and the first of them are the first of all."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.policy.quality import Metric
from modelkeeper.policy.selection import Candidate, Policy, Terms, expected_benefit, policy, select
from modelkeeper.policy.selection.fields import Field, arrays_of, benefits, first

DATA = "F"
shares = st.sampled_from([0.0, 0.1, 0.3, 0.45, 0.5, 0.61, 0.9, 1.0]) | st.floats(0, 1)


@st.composite
def candidates(draw: st.DrawFn, most: int = 40) -> list[Candidate]:
    made = []
    for number in range(draw(st.integers(1, most))):
        measured = draw(st.booleans())
        lower = draw(st.booleans())
        exact = draw(st.sampled_from([None, True, False]))
        made.append(
            Candidate(
                id=f"{draw(st.integers(0, 99)):02}{number:02}",
                name="net",
                similarity=draw(shares),
                metric=Metric(draw(st.sampled_from("ab")), draw(shares), lower) if measured else None,
                standing=draw(shares) if measured else None,
                gap=draw(st.none() | shares) if measured else None,
                data=draw(st.sampled_from(["", DATA, "G"])),
                task=draw(st.sampled_from("tu")),
                exact=exact,
                rewired=draw(shares) if exact is not None else 0.0,
                normed=draw(st.booleans()) if exact is not None else True,
                created=draw(st.sampled_from([0.0, 1.0, 2.0])),
                credit=draw(shares),
            )
        )
    return made


def field_of(given: list[Candidate]) -> Field:
    groups: dict[Any, int] = {}

    def floats(name: str) -> Any:
        said = (getattr(each, name) for each in given)
        return np.array([np.nan if value is None else value for value in said], np.float64)

    def group(each: Candidate) -> int:
        metric = each.metric
        key = metric and (each.task, each.data, metric.name, metric.lower_is_better)
        return groups.setdefault(key, len(groups))

    return Field(
        keys=np.arange(len(given)),
        similarity=floats("similarity"),
        goodness=np.array([each.metric.goodness if each.metric else np.nan for each in given]),
        comparable=np.array([group(each) for each in given]),
        standing=floats("standing"),
        gap=floats("gap"),
        credit=floats("credit"),
        created=floats("created"),
        same_data=np.array([each.data == DATA for each in given]),
        exact=np.array([-1 if each.exact is None else int(each.exact) for each in given], np.int8),
        rewired=floats("rewired"),
        normed=np.array([each.normed for each in given]),
    )


@given(candidates())
def test_benefits_are_the_expected_ones_to_the_last_bit(given: list[Candidate]) -> None:
    assert benefits(field_of(given)).tolist() == [expected_benefit(each, DATA) for each in given]


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, max_size=30), st.integers(1, 12))
def test_the_first_are_those_that_a_sort_finds_and_their_equals(
    rows: list[tuple[int, int, int]], most: int
) -> None:
    keys = [np.array(key, np.float64) for key in zip(*rows, strict=True)]
    last = sorted(rows)[min(most, len(rows)) - 1]
    assert sorted(rows[place] for place in first(most, *keys)) == sorted(row for row in rows if row <= last)


@given(candidates(), st.integers(1, 6), st.sampled_from(["benefit", "buckets"]), shares, shares)
def test_who_ranks_the_first_ranks_as_who_ranks_all(
    given: list[Candidate], most: int, name: str, poor: float, worth: float
) -> None:
    """The choice, its reason and the first runners-up are the same, with a part of the candidates."""
    chosen_by: Policy = policy(name)
    terms = Terms(minimum=0.0, poor=poor, worth=worth)
    arrays, field = arrays_of(chosen_by), field_of(given)
    assert arrays is not None
    others, refuted, outliers = field.groups(terms)
    places = [arrays.first(field, others, most)]
    if len(others) < most:
        places += [field.nearest(refuted, most), field.nearest(outliers, most)]
    rivals = arrays.rivals(field, others) if len(others) else 0
    some = select(
        [given[place] for place in np.concatenate(places)],
        chosen_by,
        data=DATA,
        terms=terms,
        considered=len(given),
        won=lambda winner: arrays.why_won(winner, rivals, DATA),
    )
    full = select(given, chosen_by, data=DATA, terms=terms, considered=len(given))
    assert (some.parent, some.reason) == (full.parent, full.reason)
    beside = most - (full.parent is not None)
    assert some.runners_up[:beside] == full.runners_up[:beside]


def test_a_policy_of_others_ranks_candidates_alone() -> None:
    class Mine(type(policy("benefit"))):  # type: ignore[misc]
        pass

    assert arrays_of(Mine()) is None
