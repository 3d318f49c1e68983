"""How good is a model, and is that better than others?

    primary({"accuracy": 0.93})                    the metric that models are compared by
    primary({"val_loss": 0.31, "train_loss": 0.2}) lower is better: its name says so
    primary({"metric": {"name": "elo", "value": 1510, "lower_is_better": False}})
                                                   a name that is not known: say the direction
    metric.goodness                                grows with quality, whatever the direction
    zscore(metric, peers)                          how far from the median of models on the same data
    standing(metric, peers)                        how far below what the good ones of these have reached

A metric is compared only with the same metric (by name) on the same data set. Names are read as people
write them: `val/acc`, `eval_accuracy`, `Top1` and `accuracy` are one name; what was measured on the data
trained on (`train_...`, and a bare name beside its `val_...`, as Keras logs it) is never what models are
compared by. The last words of a name tell the direction: `val_loss` and `top1_error` are better when lower.

Accuracy and other fractions of 1 (precision, f1, auc ...) may be given as 0.93 or in percent, 93.0: what is
above 1 is read as percent, so that peers are comparable. A percentage of 1 or below cannot be told from a
fraction: give such a model's accuracy as a fraction.
"""

import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from modelkeeper.errors import InvalidMetric, NotFinite
from modelkeeper.policy import voices

# What a name ends with, digits apart (map50, rouge2, ndcg@10).
FRACTIONS = frozenset(
    "accuracy acc top auc auroc auprc precision recall sensitivity specificity f1 f2 fbeta dice iou miou "
    "jaccard ap map ndcg mrr em exact_match hit_rate success_rate win_rate".split()
)
HIGHER = FRACTIONS | frozenset(
    "hits bleu sacrebleu rouge rougel rougelsum meteor chrf cider spice bertscore kappa mcc "
    "corrcoef correlation pearson pearsonr spearman spearmanr kendall r2 explained_variance psnr ssim snr "
    "sdr pesq stoi reward return likelihood elbo inception".split()
)
LOSSES = frozenset("loss cost nll cross_entropy crossentropy xent bce hinge".split())
LOWER = LOSSES | frozenset(
    "error err error_rate perplexity ppl mse rmse mae mape smape msle rmsle wer cer ter eer der fid lpips "
    "ece brier bpb bpc bpd bits_per_byte bits_per_character deviance divergence distance regret crps".split()
)
SAME = {"acc": "accuracy", "top1": "accuracy", "top1_acc": "accuracy", "top1_accuracy": "accuracy"} | {
    "acc1": "accuracy",
    "acc_1": "accuracy",
    "ppl": "perplexity",
}
# What a name ends with that counts or times the training and says nothing of how good it is.
COUNTERS = frozenset(
    "epoch epochs step steps iteration iterations iter batch batches samples examples tokens seen count "
    "second seconds time runtime duration minutes hours timestamp lr rate flos flops memory size norm "
    "parameters params temperature momentum fps throughput date pid id".split()
)
HELD_OUT = ("val", "valid", "validation", "dev", "eval", "evaluation", "test")  # the first is believed first
TRAINED_ON = ("train", "training", "trn")
SAY_IT = 'give meta={{"metric": {{"name": "{}", "value": ..., "lower_is_better": True or False}}}}'

# The least spread among peers that a difference is measured by: a point of accuracy, 5 % of a loss. Two
# seeds of one training differ by about half of that, so less is noise, however alike the peers are.
POINT, SHARE = 0.01, 0.05
HUGE = 1e150  # beyond this, differences of floats overflow


class Metric(Struct, frozen=True):
    """One measured quality of a model. Made by `metric` or `primary`, which check it."""

    name: str
    value: float
    lower_is_better: bool = False

    @property
    def goodness(self) -> float:
        """Grows with quality; to compare with the same metric on the same data only."""
        return -self.value if self.lower_is_better else self.value

    def __str__(self) -> str:
        return f"{self.name} {self.value:.4g}"


def metric(name: str, value: object, lower_is_better: bool | None = None) -> Metric:
    """A checked metric under its common name; the direction may be left out where the name tells it."""
    if not isinstance(name, str) or not name.strip():
        raise InvalidMetric(str(name), "it has no name", 'give one, e.g. "accuracy"')
    if lower_is_better is not None and not isinstance(lower_is_better, bool):
        raise InvalidMetric(name, f"lower_is_better is {lower_is_better!r}", "give True or False")
    lower = lowers(name) if lower_is_better is None else lower_is_better
    if lower is None:
        raise InvalidMetric(name, "its name does not tell whether lower is better", SAY_IT.format(name))
    return Metric(_split(name)[1], number(name, value), lower)


def primary(metrics: Mapping[str, object]) -> Metric:
    """The metric that a model is compared by.

    The one under "metric" if it is there; else accuracy; else the only one that was not measured on the
    data trained on. A loss gives way to a single other metric beside it.

    Raises:
        InvalidMetric: there is none, there are several, or it is no finite number in its range.
    """
    chosen = metrics.get("metric")
    if isinstance(chosen, Metric):
        return metric(chosen.name, chosen.value, chosen.lower_is_better)
    if isinstance(chosen, Mapping) and {"name", "value"} <= set(chosen) <= {*Metric.__struct_fields__}:
        return metric(**chosen)
    if chosen is not None:
        raise InvalidMetric("metric", f"{chosen!r} does not say what was measured", SAY_IT.format("accuracy"))
    if not metrics:
        raise InvalidMetric("accuracy", "it is missing", 'give how good the model is, e.g. "accuracy": 0.93')
    held_out = _stages({name: value for name, value in metrics.items() if not counts(name)})[0]
    if not held_out:
        names_given = ", ".join(sorted(metrics))
        if all(map(counts, metrics)):
            problem = "this counts or times the training, and does not say how good the model is"
            raise InvalidMetric(names_given, problem, 'add what does, e.g. "accuracy": 0.93')
        advice = 'give what was measured on other data, e.g. "accuracy": 0.93'
        raise InvalidMetric(names_given, "it was measured on the data trained on", advice)
    names = [name for name in held_out if name == "accuracy"] or list(held_out)
    if len(names) > 1:
        names = [name for name in names if _kind(name) not in LOSSES] or names
    if len(names) > 1:
        rivals = ", ".join(sorted(held_out.values()))
        problem = "one of them must be what models are compared by"
        raise InvalidMetric(rivals, problem, SAY_IT.format(names[0]))
    return metric(held_out[names[0]], metrics[held_out[names[0]]])


def gap(metrics: Mapping[str, object], of: Metric) -> float | None:
    """How much better the model is on the data it was trained on: a sign that it memorised them.

    In points for fractions of 1 (0.1: train 0.96, validation 0.86), else as a share of the larger value.
    None if `metrics` hold no such training metric.
    """
    trained_on = _stages(metrics)[1].get(of.name)
    if trained_on is None:
        return None
    there = Metric(of.name, number(trained_on, metrics[trained_on]), of.lower_is_better)
    scale = 1.0 if _kind(of.name) in FRACTIONS else max(abs(there.value), abs(of.value))
    return (there.goodness - of.goodness) / scale if scale else 0.0


def lowers(name: str) -> bool | None:
    """Is lower better, by the name? None: the name does not tell."""
    kind = _kind(name)
    return (kind in LOWER) != _negated(name) if kind else None  # neg_mean_squared_error: higher


def stage(name: str) -> str:
    """Where it was measured, one of HELD_OUT or TRAINED_ON; "": its name does not say."""
    return _split(name)[0]


def counts(name: str) -> bool:
    """Does it count or time a training (epoch, eval_runtime), as opposed to how good the model is?"""
    words = _words(name)
    return not _kind(name) and bool(words) and words[-1] in COUNTERS


def number(name: str, value: object) -> float:
    """The value of a metric as a finite float, percent turned into fractions.

    Takes every kind of number, NumPy scalars and tensors with one element among them.
    """
    problem = f"{value!r} is no number"
    kind = "bool" if isinstance(value, bool) else str(getattr(value, "dtype", ""))
    single = getattr(value, "ndim", 0) == 0
    if isinstance(value, str | bytes) or "bool" in kind or "complex" in kind or not single:
        raise InvalidMetric(name, problem, "give one plain number, e.g. 0.93")
    try:
        result = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InvalidMetric(name, problem, "give one plain number, e.g. 0.93") from error
    if not math.isfinite(result):
        raise NotFinite(name, f"{result} is not finite", "a model that diverged cannot be compared")
    if _kind(name) in FRACTIONS and not _negated(name):
        if not 0 <= result <= 100:
            advice = "give a fraction from 0 to 1, or percent up to 100"
            raise InvalidMetric(name, f"{result:g} is out of range", advice)
        result = result / 100 if result > 1 else result
    return result


class Peers(Struct, frozen=True):
    """What values of one metric on one data set are like.

    Whoever judges many models by the same peers makes it once: it takes a pass over all of them.
    """

    number: (
        int  # of them; where some owners have more of them than others, as how many equal voices they count
    )
    middle: float = 0.0  # their median,
    deviation: float = 0.0  # and their median distance from it
    reached: float = 0.0  # what a quarter has reached: the median of the better half,
    spread: float = 0.0  # and the median distance of the better half from it

    @classmethod
    def of(cls, peers: Iterable[float], lower_is_better: bool, owners: Sequence[Hashable] = ()) -> "Peers":
        """Sum peers up. If it is said whose each is, each owner has one voice (`voices`)."""
        given = [max(-HUGE, min(HUGE, value)) for value in peers]
        if not given:
            return cls(0)
        weighed = voices.weights(owners) if owners else [1.0] * len(given)
        best_first = sorted(zip(given, weighed, strict=True), reverse=not lower_is_better)
        values, weights = [value for value, _ in best_first], [weight for _, weight in best_first]
        middle = voices.middle(values, weights)
        reached = values[voices.top(weights, 1 / 4) - 1]
        half = max(1, voices.top(weights, 1 / 2) - 1)
        spread = voices.low_middle([abs(value - reached) for value in values[:half]], weights[:half])
        deviation = voices.middle([abs(value - middle) for value in values], weights)
        return cls(voices.effective(weights), middle, deviation, reached, spread)


def zscore(metric: Metric, peers: Iterable[float] | Peers) -> float:
    """By how many spreads is it better (above 0) or worse (below 0) than the median of its peers?

        z = ± (value - median) / max(1.4826 * MAD, least)

    MAD is the median distance of the peers from their median; 1.4826 makes it the standard deviation where
    they are normal. `least` is 0.01 for fractions of 1, else 5 % of the median: of peers that are all alike,
    a small difference is still none. `peers` are values of the same metric on the same data (for
    one place among others its own may be with them); without any, z is 0.
    """
    summary = _sum_up(metric, peers)
    if not summary.number:
        return 0.0
    spread = max(1.4826 * summary.deviation, _least(metric, summary.middle))
    return _distance(metric, summary.middle, spread)


def standing(metric: Metric, peers: Iterable[float] | Peers) -> float:
    """Where a model stands, from 0 (far below what its peers have reached) over 0.5 (there) to 1 (far above).

        z = ± (value - reached) / max(2.506 * spread, least * (1 + 2 / half))
        standing = (1 + z / (1 + |z|)) / 2

    `reached` is the median of the better half of the peers, `spread` their median distance from it: whether
    the other half is good or poor does not matter, nor how poor it is. 2.506 makes the spread the standard
    deviation where all peers are normal; the median of these stands at 0.30, one deviation below it at 0.19.
    `least` is as in `zscore`, but up to three times that where the better half is few, down to one model:
    how much good models differ is not known then. Standing grows with quality everywhere, so that two poor
    models are still told apart.
    """
    summary = _sum_up(metric, peers)
    if not summary.number:
        return 0.5
    least = _least(metric, summary.reached) * (1 + 2 / max(1, summary.number // 2))
    z = max(-HUGE, min(HUGE, _distance(metric, summary.reached, max(2.506 * summary.spread, least))))
    return (1 + z / (1 + abs(z))) / 2


def _sum_up(metric: Metric, peers: Iterable[float] | Peers) -> Peers:
    return peers if isinstance(peers, Peers) else Peers.of(peers, metric.lower_is_better)


def is_fraction(name: str) -> bool:
    """Is a metric a fraction of 1, by its name?"""
    return _kind(name) in FRACTIONS


def _least(metric: Metric, value: float) -> float:
    return POINT if is_fraction(metric.name) else SHARE * abs(value)


def _distance(metric: Metric, value: float, spread: float) -> float:
    """In spreads, above 0 if it is better than the value."""
    distance = (max(-HUGE, min(HUGE, metric.value)) - value) / max(spread, 1 / HUGE)
    return -distance if metric.lower_is_better else distance


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]


def _split(name: str) -> tuple[str, str]:
    """Where it was measured ("" if not said), and its common name."""
    words = _words(name)
    stage = words.pop(0) if len(words) > 1 and words[0] in HELD_OUT + TRAINED_ON else ""
    joined = "_".join(words) or name
    return stage, SAME.get(joined, joined)


def _kind(name: str) -> str:
    """The known words that a name ends with; "" if there are none."""
    words = _words(_split(name)[1])
    while words and (
        words[-1] in ("score", "macro", "micro", "weighted", "mean", "avg") or words[-1].isdigit()
    ):
        words.pop()
    for start in range(len(words)):  # the longest ending first
        ending = "_".join(words[start:])
        for known in (ending, ending.rstrip("0123456789")):
            if known in HIGHER or known in LOWER:
                return known
    return ""


def _negated(name: str) -> bool:
    return not {"neg", "negative"}.isdisjoint(_words(name))


def _stages(metrics: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """By common name the key of what was measured on other data, and of what on the data trained on."""
    keys: dict[str, dict[str, str]] = {}
    for key in metrics:
        stage, name = _split(key)
        keys.setdefault(name, {})[stage] = key
    held_out: dict[str, str] = {}
    trained_on: dict[str, str] = {}
    for name, stages in keys.items():
        others = [stages[stage] for stage in HELD_OUT if stage in stages]
        bare = [stages[""]] if "" in stages else []
        training = [stages[stage] for stage in TRAINED_ON if stage in stages] + (bare if others else [])
        if others or bare:
            held_out[name] = (others or bare)[0]
        if training:
            trained_on[name] = training[0]
    return held_out, trained_on
