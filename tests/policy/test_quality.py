"""Metrics: names, directions, what is refused, and where a model stands among its peers."""

import math
import re
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.errors import InvalidMetric
from modelkeeper.policy.quality import Metric, Peers, gap, lowers, metric, number, primary, standing, zscore

fractions = st.floats(0, 1)
values = st.floats(-1e9, 1e9)


@pytest.mark.parametrize(
    ("names", "lower"),
    [
        ("accuracy acc Top1 top5_acc val/acc balanced_accuracy roc_auc f1 f1_macro macro-F1 F1_Score", False),
        ("bleu BLEU-4 rouge1 rougeL map50 mAP50-95 ndcg@10 mean_iou r2_score eval_exact_match", False),
        ("neg_mean_squared_error neg_log_loss log_likelihood episode_reward PSNR", False),
        ("loss val_loss train_loss top1_error word_error_rate perplexity eval/ppl mse RMSE mae wer", True),
        ("cross_entropy brier_score fid negative_log_likelihood bits_per_byte mean_absolute_error", True),
        ("elo score val_score x 50 latency entropy", None),
    ],
)
def test_the_name_tells_the_direction(names: str, lower: bool | None) -> None:
    assert {name: lowers(name) for name in names.split()} == dict.fromkeys(names.split(), lower)


def test_one_metric_has_one_name() -> None:
    for name in ("accuracy", "acc", "Top1", "top1_acc", "val_acc", "eval/accuracy", "test-Top1", "acc@1"):
        assert metric(name, 0.5) == Metric("accuracy", 0.5, False)
    assert metric("val_ppl", 12) == Metric("perplexity", 12.0, True)
    assert metric("top5_acc", 0.9).name == "top5_acc"


@pytest.mark.parametrize(
    ("given_metrics", "chosen"),
    [
        ({"accuracy": 0.9, "loss": 0.3, "f1": 0.8}, Metric("accuracy", 0.9)),
        ({"accuracy": 0.99, "val_accuracy": 0.9}, Metric("accuracy", 0.9)),  # as Keras logs it
        ({"test_accuracy": 0.8, "val_accuracy": 0.9, "train_accuracy": 1.0}, Metric("accuracy", 0.9)),
        ({"train_loss": 0.1, "val_loss": 0.3}, Metric("loss", 0.3, True)),
        ({"loss": 0.3, "bleu": 28.1}, Metric("bleu", 28.1)),
        ({"accuracy": 0.9, "elo": 1510}, Metric("accuracy", 0.9)),
        ({"metric": {"name": "elo", "value": 1510, "lower_is_better": False}}, Metric("elo", 1510.0)),
        ({"metric": {"name": "f1", "value": 0.7}, "accuracy": 0.9}, Metric("f1", 0.7)),
        ({"metric": Metric("elo", 3.0, True)}, Metric("elo", 3.0, True)),
    ],
)
def test_which_metric_models_are_compared_by(given_metrics: dict[str, object], chosen: Metric) -> None:
    assert primary(given_metrics) == chosen


@pytest.mark.parametrize(
    ("given_metrics", "message"),
    [
        ({}, "it is missing"),
        ({"train_accuracy": 0.9}, "measured on the data trained on"),
        ({"f1": 0.9, "bleu": 28}, "one of them must be"),
        ({"elo": 1510}, 'meta={"metric": {"name": "elo", "value": ..., "lower_is_better": True or False}}'),
        ({"metric": "accuracy"}, "does not say what was measured"),
        ({"metric": {"name": "elo", "value": 3, "lower": True}}, "does not say what was measured"),
        ({"metric": {"name": "elo", "value": 3, "lower_is_better": 1}}, "give True or False"),
        ({"metric": {"name": " ", "value": 3}}, "it has no name"),
        ({"accuracy": math.nan}, "nan is not finite"),
        ({"loss": math.inf}, "inf is not finite"),
        ({"accuracy": -0.1}, "out of range"),
        ({"accuracy": 100.1}, "out of range"),
        ({"accuracy": True}, "True is no number"),
        ({"accuracy": np.True_}, "is no number"),
        ({"accuracy": "0.9"}, "'0.9' is no number"),
        ({"accuracy": None}, "None is no number"),
        ({"accuracy": np.array([0.9])}, "is no number"),
        ({"accuracy": 1j}, "is no number"),
        ({"loss": 10**400}, "is no number"),
    ],
)
def test_what_cannot_be_compared_is_refused(given_metrics: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidMetric, match=re.escape(message)):
        primary(given_metrics)


@pytest.mark.parametrize("value", [93, 93.0, 0.93, np.float64(93), np.array(0.93), Decimal("0.93")])
def test_numbers_of_all_kinds_and_percent(value: Any) -> None:
    assert number("accuracy", value) == pytest.approx(0.93)


@given(fractions, fractions)
def test_a_fraction_stays_as_it_is(value: float, other: float) -> None:
    assert number("val_f1", value) == value
    assert number("loss", 93.0) == 93.0


def test_the_gap_between_training_and_validation() -> None:
    both = {"train_accuracy": 0.96, "val_accuracy": 86.0}
    assert gap(both, primary(both)) == pytest.approx(0.10)
    keras = {"loss": 0.2, "val_loss": 0.4}
    assert gap(keras, primary(keras)) == pytest.approx(0.5)
    assert gap({"accuracy": 0.9}, metric("accuracy", 0.9)) is None
    assert gap({"train_loss": 0, "val_loss": 0}, metric("loss", 0)) == 0


@given(st.lists(values), values, values, st.booleans())
def test_what_is_better_stands_higher(peers: list[float], one: float, other: float, lower: bool) -> None:
    worse, better = sorted((Metric("m", one, lower), Metric("m", other, lower)), key=lambda m: m.goodness)
    assert 0 <= standing(worse, peers) <= standing(better, peers) <= 1
    assert zscore(worse, peers) <= zscore(better, peers)


@given(st.lists(values, min_size=1), values)
def test_the_direction_is_a_mirror(peers: list[float], value: float) -> None:
    up, down = Metric("m", value), Metric("m", -value, lower_is_better=True)
    assert standing(up, peers) == standing(down, [-peer for peer in peers])


@given(st.lists(fractions, min_size=1, max_size=9), st.booleans(), st.randoms())
def test_the_order_of_peers_does_not_matter(peers: list[float], lower: bool, random: Any) -> None:
    shuffled = random.sample(peers, len(peers))
    one = Metric("accuracy", 0.5, lower)
    assert standing(one, peers) == standing(one, shuffled) == standing(one, Peers.of(peers, lower))
    assert zscore(one, peers) == zscore(one, shuffled) == zscore(one, Peers.of(peers, lower))
    assert zscore(Metric("accuracy", float(np.median(peers)), lower), peers) == pytest.approx(0)
    assert standing(one, []) == 0.5


@given(st.lists(fractions, max_size=9), fractions, fractions, st.booleans())
def test_who_becomes_better_stands_higher_among_peers_of_which_it_is_one(
    others: list[float], one: float, other: float, lower: bool
) -> None:
    worse, better = sorted(
        (Metric("f1", one, lower), Metric("f1", other, lower)), key=lambda each: each.goodness
    )
    before, after = (standing(each, [*others, each.value]) for each in (worse, better))
    assert before <= after + 1e-12


@given(st.lists(st.floats(1, 100), min_size=1, max_size=9), st.floats(1, 100), st.integers(-20, 20))
def test_the_unit_of_a_metric_does_not_matter(peers: list[float], value: float, power: int) -> None:
    for lower in (True, False):
        other = Metric("m", value * 2.0**power, lower)
        assert standing(other, [peer * 2.0**power for peer in peers]) == pytest.approx(
            standing(Metric("m", value, lower), peers)
        )


good = st.lists(st.floats(0.84, 0.88), min_size=1, max_size=9)


@given(good, st.data())
def test_half_a_zoo_of_poor_models_does_not_make_them_look_good(
    peers: list[float], data: st.DataObject
) -> None:
    poor = st.lists(st.floats(0, 0.6), min_size=1, max_size=len(peers))
    some, others = data.draw(poor), data.draw(poor)
    reached = sorted(peers)[-max(1, (len(peers) + len(some)) // 2) :]
    for value in some:
        assert standing(metric("accuracy", value), peers + some) < 0.1
        assert standing(metric("error", 1 - value), [1 - peer for peer in peers + some]) < 0.1
    assert standing(metric("accuracy", reached[0]), peers + some) > 0.1
    if len(some) == len(others):  # how poor they are does not matter to the others
        for value in peers:
            one = metric("accuracy", value)
            assert standing(one, peers + some) == standing(one, peers + others)


def test_standing_by_hand() -> None:
    def place(value: float, *peers: float) -> float:
        return standing(metric("accuracy", value), peers)

    assert place(0.9, 0.9) == place(0.9, *[0.9] * 7) == 0.5
    assert place(0.86, 0.86, 0.86, 0.86, 0.99) == 0.5  # one that was lucky does not make others poor
    assert place(0.87, 0.87, 0.90) == pytest.approx(1 / 4)  # of two: a spread is taken to be three points
    assert place(0.60, 0.60, 0.90) == pytest.approx(1 / 22)
    assert place(0.60, 0.60, 0.60, 0.90) == pytest.approx(1 / 22)
    healthy = np.random.default_rng(0).normal(0.8, 0.02, 4001)
    assert place(0.8, *healthy) == pytest.approx(0.30, abs=0.01)
    assert place(0.78, *healthy) == pytest.approx(0.19, abs=0.01)
    assert place(0.4, *healthy, *[0.4] * 4001) < 0.05
    assert standing(metric("perplexity", 300), [20, 21, 300, 310]) < 0.01


def test_the_z_score_by_hand() -> None:
    assert zscore(metric("accuracy", 0.7), [0.7, 0.8, 0.9]) == pytest.approx(-0.1 / (1.4826 * 0.1))
    assert zscore(metric("accuracy", 0.88), [0.9] * 5) == pytest.approx(-2)  # the least spread: one point
    assert zscore(metric("loss", 2.2), [2.0] * 5) == pytest.approx(-2)  # the least spread: 5 %
    assert zscore(metric("loss", 1e308), [-1e308] * 5) < 0 <= standing(metric("loss", 1e308), [-1e308] * 5)


def test_a_metric_as_json() -> None:
    one = metric("val_loss", 0.3)
    assert msgspec.json.decode(msgspec.json.encode(one), type=Metric) == one
    assert str(one) == "loss 0.3"
