"""Selection: against a plain reading of the paper's policy, and laws that every policy obeys."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.errors import InvalidSetting
from modelkeeper.policy.quality import Metric, metric, standing
from modelkeeper.policy.selection import (
    POLICIES,
    Candidate,
    Choice,
    Terms,
    expected_benefit,
    policy,
    select,
)

policies = st.sampled_from(list(POLICIES.built_in))
few = st.sampled_from([0.0, 0.05, 0.29, 0.3, 0.55, 0.59, 0.6, 0.89, 0.9, 0.95, 1.0])


def choose(
    pool: list[Candidate],
    by: str = "buckets",
    *,
    data: str | None,
    considered: int | None = None,
    **terms: Any,
) -> Choice:
    """The choice by a policy of this name, on these terms."""
    return select(pool, policy(by), data=data, terms=Terms(**terms), considered=considered)


@st.composite
def pools(draw: st.DrawFn, data: str = "digits mnist", names: str = "a b c") -> list[Candidate]:
    """Candidates with many ties; a standing is that among the others on the same data."""
    rows = draw(
        st.lists(
            st.tuples(
                few,
                st.sampled_from([None, 0.5, 0.8, 0.81, 0.9]),
                st.sampled_from(data.split()),
                st.sampled_from(["accuracy", "loss"]),
                st.sampled_from(names.split()),
                st.integers(0, 2),
                st.sampled_from([None, 0.0, 0.1, 0.3]),
            ),
            max_size=8,
        )
    )
    made = []
    for number, (similarity, value, of, kind, name, created, memorised) in enumerate(rows):
        peers = [row[1] for row in rows if row[1] is not None and row[2:4] == (of, kind)]
        measured = None if value is None else metric(kind, value)
        made.append(
            Candidate(
                id=f"m{number}",
                name=name,
                similarity=similarity,
                metric=measured,
                standing=None if measured is None else standing(measured, peers),
                data=of,
                created=float(created),
                gap=memorised,
            )
        )
    return made


def by_the_paper(pool: list[Candidate], data: str) -> Candidate | None:
    """Ten buckets, the first from the top that holds one, in it the best accuracy: all on one data set."""
    for number in range(9, -1, -1):
        held = [
            each
            for each in pool
            if each.similarity >= 0.3
            and each.similarity * 10 >= number
            and (each.similarity * 10 < number + 1 or number == 9)
        ]
        measured = [each for each in held if each.metric]
        here = [each for each in measured if each.data == data] or measured or held
        here.sort(key=lambda each: each.id)
        here.sort(key=lambda each: (each.similarity, each.created), reverse=True)
        if here:
            return max(here, key=lambda each: each.metric.goodness if each.metric else 0)
    return None


@given(pools(data="digits"))
def test_buckets_are_what_the_paper_says(pool: list[Candidate]) -> None:
    pool = [each for each in pool if each.metric is None or each.metric.name == "accuracy"]
    assert choose(pool, data="digits").parent == by_the_paper(pool, "digits")


@given(pools())
def test_the_winner_is_not_beaten_by_any_that_it_can_be_compared_with(pool: list[Candidate]) -> None:
    parent = choose(pool, data="digits").parent
    eligible = [each for each in pool if each.similarity >= 0.3]
    assert (parent is None) == (not eligible)
    for each in eligible:
        assert parent is not None
        assert min(int(each.similarity * 10), 9) <= min(int(parent.similarity * 10), 9)
        if min(int(each.similarity * 10), 9) < min(int(parent.similarity * 10), 9):
            continue
        assert parent.metric or not each.metric
        if each.metric and parent.metric:
            assert parent.data == "digits" or each.data != "digits"
            if (each.data, each.metric.name) == (parent.data, parent.metric.name):
                assert parent.metric.goodness >= each.metric.goodness


@given(pools(), policies, st.randoms(), st.sampled_from(["digits", "other", None]))
def test_the_order_of_candidates_does_not_matter(
    pool: list[Candidate], by: str, random: Any, data: str | None
) -> None:
    shuffled = random.sample(pool, len(pool))
    assert choose(shuffled, data=data, by=by) == choose(pool, data=data, by=by)


@given(pools(), policies, st.floats(0, 1), st.lists(st.sampled_from(["a", "b", "m0"])), st.data())
def test_everyone_is_in_the_answer_once_with_a_reason(
    pool: list[Candidate], by: str, minimum: float, named: list[str], data: st.DataObject
) -> None:
    excluded = data.draw(st.lists(st.sampled_from(["b", "c", "m1"])))
    choice = choose(pool, data="digits", by=by, minimum=minimum, preferred=named, excluded=excluded)
    everyone = [each.candidate for each in choice.runners_up] + ([choice.parent] if choice.parent else [])
    assert sorted(everyone, key=lambda each: each.id) == pool
    assert choice.reason
    assert all(each.why_lost for each in choice.runners_up)
    eligible = [
        each
        for each in pool
        if each.similarity >= minimum and each.name not in excluded and each.id not in excluded
    ]
    favourites = [each for each in eligible if each.name in named or each.id in named]
    assert (choice.parent in (favourites or eligible)) if eligible else choice.parent is None
    assert msgspec.json.decode(msgspec.json.encode(choice), type=Choice) == choice


@given(pools(), policies, few, st.sampled_from([None, 0.99]))
def test_an_excluded_candidate_changes_nothing(
    pool: list[Candidate], by: str, similarity: float, accuracy: float | None
) -> None:
    extra = Candidate(
        id="extra",
        name="x",
        similarity=similarity,
        metric=None if accuracy is None else metric("accuracy", accuracy),
        standing=None if accuracy is None else 1.0,
        data="digits",
    )
    alone = choose(pool, data="digits", by=by)
    choice = choose([*pool, extra], data="digits", by=by, excluded=["x"])
    assert choice.parent == alone.parent
    assert choice.runners_up[:-1] == alone.runners_up
    assert choice.runners_up[-1].why_lost == "excluded by name"
    assert choice.reason == alone.reason or not pool


@given(pools(), policies, st.data())
def test_raising_its_accuracy_never_makes_a_candidate_lose(
    pool: list[Candidate], by: str, data: st.DataObject
) -> None:
    parent = choose(pool, data="digits", by=by).parent
    if parent is None or parent.metric is None or parent.standing is None:
        return
    better = Metric(
        parent.metric.name,
        parent.metric.value + (-0.1 if parent.metric.lower_is_better else 0.1),
        parent.metric.lower_is_better,
    )
    higher = data.draw(st.floats(parent.standing, 1))
    raised = msgspec.structs.replace(parent, metric=better, standing=higher)
    again = choose([raised if each is parent else each for each in pool], data="digits", by=by)
    assert again.parent == raised


@given(pools(), policies)
def test_a_runner_up_wins_when_all_before_it_are_gone(pool: list[Candidate], by: str) -> None:
    choice = choose(pool, data="digits", by=by, minimum=0)
    for place, runner_up in enumerate(choice.runners_up):
        rest = [each.candidate for each in choice.runners_up[place:]]
        assert choose(rest, data="digits", by=by, minimum=0).parent == runner_up.candidate


unit = st.floats(0, 1)


@given(unit, unit, unit, st.booleans(), st.floats(-1, 1), unit)
def test_benefit_grows_with_each_part_and_falls_with_memorising(
    similarity: float, place: float, rewired: float, exact: bool, memorised: float, more: float
) -> None:
    one = Candidate(
        id="1",
        name="a",
        similarity=similarity,
        metric=metric("accuracy", 0.5),
        standing=place,
        rewired=rewired,
        exact=exact,
        gap=memorised,
        data="digits",
    )

    def benefit(**other: Any) -> float:
        return expected_benefit(msgspec.structs.replace(one, **other), "digits")

    assert 0 <= expected_benefit(one, "other") <= benefit() <= 1
    assert benefit(exact=True) >= benefit()
    for part in ("standing", "similarity"):
        assert benefit(**{part: max(getattr(one, part), more)}) >= benefit()
    assert benefit(rewired=max(rewired, more)) <= benefit()
    assert benefit(normed=False) <= benefit()
    assert benefit(gap=memorised + more) <= benefit()


def test_benefit_by_hand() -> None:
    def benefit(**parts: Any) -> float:
        return expected_benefit(candidate("a", 0.6, **{"accuracy": 0.5} | parts), "F")

    assert benefit() == pytest.approx(0.8 * 0.6 * 0.9)
    assert benefit(rewired=0.5) == pytest.approx(0.8 * 0.6 * 0.5 * 0.9)
    assert benefit(rewired=0.5, normed=False) == pytest.approx(0.8 * 0.6 * 0.25 * 0.9)
    assert benefit(exact=True) == benefit(exact=True, rewired=0.5) == pytest.approx(0.9)
    assert benefit(exact=True, accuracy=1.0) == 1
    assert benefit(exact=True, accuracy=0.095) == pytest.approx(0.25 * 0.819)
    assert benefit(exact=True, gap=0.05) == pytest.approx(0.9)
    assert benefit(exact=True, gap=0.10) == pytest.approx(0.9 * 0.75)
    assert benefit(exact=True, gap=0.5) == pytest.approx(0.9 * 0.5)
    assert benefit(exact=True, data="M") == pytest.approx(0.9 * 0.35)
    assert benefit(exact=True, accuracy=None) == pytest.approx((0.15 / 0.19) ** 2 * 0.83)


def test_an_exact_parent_wins_over_a_more_similar_one() -> None:
    pool = [candidate("near", 0.95, 0.8), candidate("within", 0.4, 0.5, exact=True)]
    choice = choose(pool, data="F", by="benefit")
    assert choice.parent == pool[1]
    assert "exact" in choice.reason
    assert choice.runners_up[0].why_lost.startswith("expected benefit 0.73 below 0.9 (standing 0.80, ")
    assert choose(pool, data="F").parent == pool[0]


def test_what_is_expected_to_gain_nothing_is_not_taken() -> None:
    pool = [candidate("far", 0.35, 0.9, exact=False), candidate("farther", 0.31, 0.9)]
    choice = choose(pool, data="F", by="benefit", worth=0.33)
    assert choice.parent is None
    assert choice.reason == (
        "the best expected benefit is 0.274 below 0.33 (standing 0.90, similarity 0.35, not exact): "
        "from scratch, training is expected to be as fast"
    )
    assert [each.candidate.id for each in choice.runners_up] == ["far", "farther"]
    assert "below 0.33" in choice.runners_up[0].why_lost
    assert choice.runners_up[1].why_lost.endswith("similarity 0.31, no plan was made)"), "nobody knows"
    asked: dict[str, Any] = {"by": "benefit", "worth": 0.33}
    for easier in ({"preferred": ["FAR"]}, {"worth": 0.2}, {"by": "buckets"}):
        assert choose(pool, data="F", **(asked | easier)).parent == pool[0]


def measured(rows: list[tuple[float, bool]], name: str = "accuracy") -> list[Candidate]:
    """Models of one data set, each with its standing among all of them: exact ones, and similar ones."""
    peers = [value for value, _ in rows]
    made = []
    for number, (value, exact) in enumerate(rows):
        of = metric(name, value)
        made.append(
            candidate(
                f"m{number}", 0.9 if exact else 0.6, exact=exact, metric=of, standing=standing(of, peers)
            )
        )
    return made


@given(st.lists(st.floats(0.85, 0.88), min_size=1, max_size=6), st.data())
def test_poor_models_do_not_win_though_they_are_half_of_the_zoo(
    good: list[float], data: st.DataObject
) -> None:
    """Nor though they are exact and the good ones only similar; alone, they are worth less than scratch."""
    poor = data.draw(st.lists(st.floats(0, 0.65), min_size=1, max_size=len(good)))
    rows = [(value, False) for value in good] + [(value, True) for value in poor]
    for pool in (
        measured(rows),
        measured([(1 - value, exact) for value, exact in rows], "error_rate"),
        measured([(10 ** (3 - 2 * value), exact) for value, exact in rows], "perplexity"),
    ):
        choice = choose(pool, data="F", by="benefit", worth=0.24)
        assert choice.parent in pool[: len(good)]
        assert choose(pool[len(good) :], data="F", by="benefit", worth=0.24).parent is None


def test_an_exact_parent_a_little_below_the_others_still_wins() -> None:
    for lower in (0.84, 0.85, 0.86):
        pool = measured([(0.86, False), (0.87, False), (0.86, False), (lower, True)])
        assert choose(pool, data="F", by="benefit", worth=0.24).parent == pool[-1]


def candidate(key: str, similarity: float, accuracy: float | None = None, **more: Any) -> Candidate:
    known = {} if accuracy is None else {"metric": metric("accuracy", accuracy), "standing": accuracy}
    fields: dict[str, Any] = {"id": key, "name": key.upper(), "similarity": similarity, "data": "F"}
    return Candidate(**(fields | known | more))


def test_reasons_in_words() -> None:
    pool = [
        candidate("best", 0.91, 0.88),
        candidate("good", 0.95, 0.8796),
        candidate("same", 0.90, 0.88),
        candidate("other", 0.97, 0.99, data="M"),
        candidate("blank", 0.93),
        candidate("lower", 0.62, 0.99),
        candidate("floor", 0.2999, 0.99),
        candidate("out", 0.99, 1.0),
    ]
    choice = choose(pool, data="F", excluded=["OUT"])
    assert choice.parent == pool[0]
    assert choice.reason == (
        "similarity 0.91, bucket 10 of 10: accuracy 0.88 on the same data set is the best of 5 models in it"
    )
    assert {each.candidate.id: each.why_lost for each in choice.runners_up} == {
        "same": "the same accuracy, but similarity 0.9 below 0.91",
        "good": "accuracy 0.8796 below 0.88",
        "other": "trained on other data ('M')",
        "blank": "how good it is, is not known",
        "lower": "similarity 0.62 is in a lower bucket",
        "floor": "similarity 0.2999 below the minimum 0.3",
        "out": "excluded by name",
    }
    losses = [
        candidate(key, 0.9, metric=metric("loss", value), standing=0.5)
        for key, value in (("1", 0.3), ("2", 0.2))
    ]
    choice = choose(losses, data="F")
    assert choice.parent == losses[1]
    assert choice.runners_up[0].why_lost == "loss 0.3 above 0.2"


def test_other_data_sets_compete_by_their_standing() -> None:
    pool = [
        candidate("hard", 0.9, 0.6, data="ImageNet", standing=0.9),
        candidate("easy", 0.9, 0.99, data="MNIST", standing=0.4),
    ]
    choice = choose(pool, data="F")
    assert choice.parent == pool[0]
    assert choice.runners_up[0].why_lost == "standing among its peers on 'MNIST' 0.4 below 0.9"


def test_an_expected_benefit_says_what_is_known_of_the_data() -> None:
    for ours, theirs, said in (
        ("F", "F", "exact)"),
        ("F", "M", "exact, other data: 'M')"),
        ("F", "", "exact, its data set is not known)"),
        ("", "M", "exact, of data 'M', and the query names none)"),
        ("", "", "exact, its data set is not known)"),
    ):
        pool = [candidate("a", 0.9, 0.9, data=theirs, exact=True)]
        assert choose(pool, data=ours, by="benefit").reason.endswith(said)


def test_a_cold_start_says_why() -> None:
    assert choose([], data=None).reason == "the zoo is empty, or nothing in it passes the filters"
    low = [candidate("a", 0.21), candidate("b", 0.1)]
    assert choose(low, data="F").reason == "the most similar model reaches 0.21 below the minimum 0.3"
    assert choose(low, data="F", excluded=["a", "b"]).reason == "all 2 candidates are excluded by name"
    none = choose([], data="F", considered=1200)
    assert none.reason == "none of 1,200 models reaches the minimum similarity 0.3"
    assert none.parent is None


def test_a_preferred_parent_wins_if_it_is_similar_enough() -> None:
    pool = [candidate("a", 0.99, 0.9), candidate("b", 0.4, 0.5), candidate("c", 0.1, 0.9)]
    choice = choose(pool, data="F", preferred=["B", "c"])
    assert choice.parent == pool[1]
    assert choice.reason.startswith("preferred by name; ")
    assert [each.why_lost for each in choice.runners_up] == [
        "B is preferred by name",
        "similarity 0.1 below the minimum 0.3",
    ]
    choice = choose(pool, data="F", preferred="C")
    assert choice.parent == pool[0]
    assert choice.reason.endswith("; no preferred parent reaches the minimum similarity 0.3")


def test_wrong_use_is_told() -> None:
    with pytest.raises(InvalidSetting, match="policy cannot be 'best': choose one of benefit, buckets"):
        choose([], data=None, by="best")
    with pytest.raises(InvalidSetting, match="minimum cannot be 30"):
        choose([], data=None, minimum=30)
    with pytest.raises(ValueError, match="similarity of candidate 'a' is nan"):
        candidate("a", float("nan"))
    with pytest.raises(ValueError, match="needs a metric and its standing"):
        candidate("a", 0.5, metric=metric("loss", 1))
