"""Retention: what a model is worth, who stays, and what is said of those that go."""

import math
from itertools import product
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.errors import InvalidSetting
from modelkeeper.policy import retention
from modelkeeper.policy.retention import HALF_LIFE, fair_shares
from modelkeeper.settings import DAY
from tests.helpers.slow_retention import Decided, Item, as_items, retain, slowly, worth

ages = st.floats(0, 1e12)
unit = st.floats(0, 1)


@st.composite
def zoos(draw: st.DrawFn) -> list[Item]:
    made: st.SearchStrategy[dict[str, Any]] = st.builds(
        dict,
        bytes=st.one_of(st.integers(0, 12), st.integers(0, 10**11)),
        standing=unit,
        cover=unit,
        hits=st.integers(0, 100),
        age=ages,
        last_used_age=st.none() | ages,
        pinned=st.sampled_from([False, False, False, True]),
    )
    return [Item(id=f"m{number}", **each) for number, each in enumerate(draw(st.lists(made, max_size=8)))]


@given(zoos(), st.floats(0, 1.2))
def test_no_other_choice_that_fits_is_worth_more(zoo: list[Item], share: float) -> None:
    capacity = int(sum(item.bytes for item in zoo) * share)
    result = retain(zoo, capacity)
    pinned = {item.id for item in zoo if item.pinned}
    choices = [
        [item for item, stays in zip(zoo, each, strict=True) if stays]
        for each in product((False, True), repeat=len(zoo))
    ]
    valid = [
        each
        for each in choices
        if pinned <= {item.id for item in each} and sum(item.bytes for item in each) <= capacity
    ]
    kept = [item for item in zoo if item.id in result.kept]
    assert result.bytes_kept == sum(item.bytes for item in kept)
    assert {each.id for each in result.evicted} == {item.id for item in zoo} - result.kept
    if valid:
        assert result.bytes_kept <= capacity
        best = max(sum(worth(item) for item in each) for each in valid)
        assert sum(worth(item) for item in kept) == pytest.approx(best, rel=1e-8)
        assert (result.optimal, result.gap, result.note) == (True, 0, "")
    else:
        assert result.kept == pinned
        assert "the pinned models alone exceed the capacity by" in result.note
    assert pinned <= result.kept
    assert len(kept) == len(zoo) or sum(item.bytes for item in zoo) > capacity


@given(zoos(), st.floats(0, 1), st.randoms())
def test_the_order_of_models_does_not_matter(zoo: list[Item], share: float, random: Any) -> None:
    capacity = int(sum(item.bytes for item in zoo) * share)
    assert retain(random.sample(zoo, len(zoo)), capacity) == retain(zoo, capacity)


@given(zoos(), st.floats(0, 1), st.integers(1, 100), unit)
def test_who_stays_would_stay_if_it_were_worth_more(
    zoo: list[Item], share: float, hits: int, better: float
) -> None:
    capacity = int(sum(item.bytes for item in zoo) * share)
    kept = retain(zoo, capacity).kept
    for item in zoo:
        raised = msgspec.structs.replace(
            item, hits=item.hits + hits, standing=max(item.standing, better), last_used_age=0.0
        )
        assert worth(raised) > worth(item) > 0
        if item.id in kept:
            assert item.id in retain([raised if each is item else each for each in zoo], capacity).kept


@given(unit, unit, st.integers(0, 1000), ages, unit, ages)
def test_worth_grows_with_use_standing_and_cover_and_decays(
    standing: float, cover: float, hits: int, idle: float, more: float, later: float
) -> None:
    item = Item(id="a", bytes=1, standing=standing, cover=cover, hits=hits, age=idle)
    assert worth(item) > 0
    for change in (
        {"standing": max(standing, more)},
        {"cover": max(cover, more)},
        {"hits": hits + 1},
        {"last_used_age": min(idle, later)},
    ):
        assert worth(msgspec.structs.replace(item, **change)) >= worth(item)


@given(zoos())
def test_worth_is_what_the_formula_says(zoo: list[Item]) -> None:
    for item, found in zip(zoo, retention.worth(as_items(zoo)), strict=True):
        used, fresh = 1 + math.log2(1 + item.hits), math.exp2(-min(item.idle / HALF_LIFE, 40.0))
        told = used * (0.1 + 0.9 * item.standing) * (0.05 + 0.95 * item.cover) * fresh
        assert found == pytest.approx(told, rel=1e-12)


def test_worth_by_hand() -> None:
    fresh = Item(id="a", bytes=1, standing=1.0)
    assert worth(fresh) == 1
    assert worth(msgspec.structs.replace(fresh, hits=3)) == 3
    assert worth(msgspec.structs.replace(fresh, age=HALF_LIFE)) == 0.5
    assert worth(msgspec.structs.replace(fresh, age=HALF_LIFE, last_used_age=0.0)) == 1
    assert worth(msgspec.structs.replace(fresh, age=-5.0)) == 1  # a clock that went back
    assert worth(msgspec.structs.replace(fresh, cover=0.0)) == pytest.approx(0.05)
    assert worth(fresh, half_life=1.0) == 1


def test_of_twins_the_better_one_stays() -> None:
    twins = [
        Item(id="better", bytes=100, standing=0.6),
        Item(id="worse", bytes=100, standing=0.59, cover=0.02),
        Item(id="alone", bytes=100, standing=0.2),
    ]
    assert retain(twins, 200).kept == {"better", "alone"}


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 10**12)), st.integers(0, 10**12))
def test_shares_are_max_min_fair(demands: dict[str, int], capacity: int) -> None:
    """All that is asked for or there is given; who gets less than asked gets as much as anyone."""
    shares = fair_shares(demands, capacity)
    assert sum(shares.values()) == min(capacity, sum(demands.values()))
    assert all(0 <= shares[owner] <= demands[owner] for owner in demands)
    short = [shares[owner] for owner in demands if shares[owner] < demands[owner]]
    if short:
        assert max(shares.values()) - min(short) <= 1


@st.composite
def shared_zoos(draw: st.DrawFn) -> list[Item]:
    owners = st.sampled_from(["ann", "bob", "eve"])
    return [msgspec.structs.replace(item, owner=draw(owners)) for item in draw(zoos())]


@given(shared_zoos(), st.floats(0, 1.2))
def test_nobody_within_a_fair_share_gives_way(zoo: list[Item], part: float) -> None:
    capacity = int(sum(item.bytes for item in zoo) * part)
    asked = dict.fromkeys({item.owner for item in zoo}, 0)
    for item in zoo:
        asked[item.owner] += item.bytes
    shares, result = fair_shares(asked, capacity), retain(zoo, capacity)
    if len(asked) > 1:
        assert result.bytes_kept <= capacity
        for item in zoo:
            if asked[item.owner] <= shares[item.owner]:
                assert item.id in result.kept
    if len(asked) == 1:
        assert result == retain([msgspec.structs.replace(item, owner="") for item in zoo], capacity)
    gone = {each.id for each in result.evicted}
    assert gone == {item.id for item in zoo} - result.kept
    room = capacity - result.bytes_kept
    if not any(item.pinned for item in zoo):
        assert all(item.bytes > room for item in zoo if item.id in gone)  # no room is left unused


@given(st.one_of(zoos(), shared_zoos()), st.floats(0, 1.2))
def test_arrays_decide_what_one_model_at_a_time_decides(zoo: list[Item], part: float) -> None:
    capacity = int(sum(item.bytes for item in zoo) * part)
    assert retain(zoo, capacity) == slowly(zoo, capacity)


@given(st.one_of(zoos(), shared_zoos()), st.floats(0, 1.2), st.floats(0, 0.3))
def test_spare_room_takes_from_nobody_who_has_a_right_to_stay(
    zoo: list[Item], part: float, share: float
) -> None:
    """What fits stays altogether; pins within their owner's share stay, and who keeps no more than it."""
    capacity = int(sum(item.bytes for item in zoo) * part)
    spare = int(capacity * share)
    asked = dict.fromkeys({item.owner for item in zoo}, 0)
    pinned = dict(asked)
    for item in zoo:
        asked[item.owner] += item.bytes
        pinned[item.owner] += item.bytes * item.pinned
    shares = fair_shares(asked, capacity)
    plain, spared = retain(zoo, capacity), retain(zoo, capacity, spare=spare)
    if len(plain.kept) == len(zoo):
        assert spared == plain
        return
    assert spared.bytes_kept <= plain.bytes_kept or len(asked) > 1
    for item in zoo:
        within = asked[item.owner] <= shares[item.owner]
        held = item.pinned and (len(asked) == 1 or pinned[item.owner] <= shares[item.owner])
        assert item.id in spared.kept or not ((within and len(asked) > 1) or held)
    crowded = [owner for owner in asked if asked[owner] > shares[owner]]
    each = -(-spare // max(1, len(crowded)))
    if not any(pinned.values()) and (len(asked) == 1 or all(shares[owner] >= each for owner in crowded)):
        assert spared.bytes_kept <= capacity - spare


@given(shared_zoos(), st.floats(0, 1), st.integers(1, 20), st.integers(1, 10**11))
def test_pins_of_one_take_nothing_from_the_fair_share_of_another(
    zoo: list[Item], part: float, number: int, size: int
) -> None:
    """However much somebody pins, others keep at least what one more owner's fair share leaves them."""
    capacity = int(sum(item.bytes for item in zoo) * part)
    flood = [Item(id=f"x{at}", bytes=size, pinned=True, owner="mallory", hits=99) for at in range(number)]
    kept = retain([*zoo, *flood], capacity).kept
    asked = {owner: sum(item.bytes for item in zoo if item.owner == owner) for owner in ("ann", "bob", "eve")}
    fair = capacity // 4
    for owner, demand in asked.items():
        if 0 < demand <= fair:
            assert {item.id for item in zoo if item.owner == owner} <= kept


def test_spare_room_is_made_by_all_who_are_crowded_in_equal_parts() -> None:
    """Of 50 bytes each keeps 40, however much more the models of the one are worth."""
    low = [Item(id=f"a{number}", bytes=10, owner="ann", age=90 * DAY) for number in range(9)]
    high = [Item(id=f"e{number}", bytes=10, owner="eve", hits=99) for number in range(9)]
    kept = retain([*low, *high], 100, spare=20).kept
    assert sorted(place[0] for place in kept) == ["a"] * 4 + ["e"] * 4
    pinned = [msgspec.structs.replace(item, pinned=True) for item in low]
    kept = retain([*pinned, *high], 100, spare=20).kept
    assert sorted(place[0] for place in kept) == ["a"] * 5 + ["e"] * 4, "pins hold within the whole share"


def test_nothing_is_spared_unless_asked_for() -> None:
    """What just fits beside what goes stays, to the last byte."""
    items = as_items(
        [Item(id="a", bytes=60, hits=9), Item(id="b", bytes=40), Item(id="c", bytes=30, cover=0.1)]
    )
    assert retention.retain(items, 100).kept.tolist() == [True, True, False]
    assert retention.retain(items, 100, spare=1).kept.tolist() == [True, False, True]
    assert retention.retain(items, 99).kept.tolist() == [True, False, True]


def test_the_attack_pins_of_one_do_not_push_out_another() -> None:
    ann = [Item(id=f"a{number}", bytes=10, owner="ann", age=9 * DAY) for number in range(6)]
    eve = [Item(id=f"e{number}", bytes=10, owner="eve", pinned=True, standing=1.0) for number in range(9)]
    result = retain([*ann, *eve], 100)
    assert {item.id for item in ann} >= result.kept - {item.id for item in eve}
    assert len(result.kept & {item.id for item in ann}) == 5
    assert len(result.kept & {item.id for item in eve}) == 5
    assert {each.reason for each in result.evicted if each.id.startswith("e")} == {
        "its owner keeps more than a fair share of the room (50 B): pinned, and beyond the share"
    }


def test_reasons_in_words() -> None:
    zoo = [
        Item(id="pinned", bytes=10**9, pinned=True),
        Item(id="used", bytes=10**9, hits=9, age=90 * DAY, last_used_age=DAY),
        Item(id="idle", bytes=10**9, age=90 * DAY, cover=0.1),
        Item(id="huge", bytes=5 * 10**9),
    ]
    result = retain(zoo, 2 * 10**9)
    assert result.kept == {"pinned", "used"}
    assert {each.id: each.reason for each in result.evicted} == {
        "idle": "others are worth more in the same room: never a parent, idle for 90 days, standing 0.50, "
        "90% covered by a better model",
        "huge": "5 GB do not fit into 1 GB",
    }
    fresh = retain([Item(id="fresh", bytes=10, age=0.4), Item(id="pinned", bytes=10, pinned=True)], 15)
    assert fresh.evicted[0].reason.startswith("10 B do not fit into 5 B")
    fresh = retain([Item(id="new", bytes=10, age=0.4, cover=0.1), Item(id="used", bytes=10, hits=9)], 15)
    assert "idle for less than a day" in fresh.evicted[0].reason
    result = retain(zoo, 10**8)
    assert result.note == "the pinned models alone exceed the capacity by 900 MB: unpin some, or raise it"
    assert result.kept == {"pinned"}


def test_wrong_use_is_told() -> None:
    with pytest.raises(InvalidSetting, match="capacity cannot be -1"):
        retain([], -1)
    with pytest.raises(InvalidSetting, match="half_life cannot be 0"):
        retain([], 1, half_life=0)
    with pytest.raises(ValueError, match="no model can be like this: bytes -1"):
        msgspec.structs.replace(as_items([Item(id="a", bytes=1)]), bytes=np.array([-1]))
    assert retain([], 0) == Decided(frozenset(), (), True, 0.0, 0, "")
