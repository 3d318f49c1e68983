"""By which number of a training's logs is it compared with others, and with itself an epoch ago?

    by_name("val_f1", "max")       what the user says
    by_rule(logs)                  nothing is said: accuracy; else the only other metric; else the loss

What was measured on the data trained on is never taken by the rule: in a zoo it would stand beside honest
numbers under the same name. Of logs whose bare names mean that (Keras'), only `val_` ones are taken. A user
who names another one takes it.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from modelkeeper.errors import InvalidMetric, InvalidSetting
from modelkeeper.policy.quality import HELD_OUT, Metric, counts, lowers, metric, number, primary, stage

_MODES = {"min": True, "max": False, "auto": None}


class Objective(Struct, frozen=True):
    """What is looked at: a name in the logs and its direction, or several that are added up."""

    parts: tuple[tuple[str, bool], ...]  # names, and whether lower is better

    @property
    def name(self) -> str:
        """As the zoo knows it, before its stage is cut off."""
        names = [name for name, _ in self.parts]
        return names[0] if len(names) == 1 else "_".join([*names, "multi_objective"])

    def measure(self, logs: Mapping[str, Any]) -> Metric | None:
        """Its value in the logs of one epoch; None if it is not there, or no finite number in its range."""
        if any(name not in logs for name, _ in self.parts):
            return None
        try:
            if len(self.parts) == 1:
                (name, lower), *_ = self.parts
                return metric(name, logs[name], lower)
            terms = [float(logs[name]) * (1 if lower else -1) for name, lower in self.parts]
            return metric(self.name, sum(terms), True)
        except InvalidMetric:
            return None


def by_name(monitor: str, mode: str = "auto") -> Objective:
    """What the user says, in the words of Keras and others.

    Raises:
        InvalidSetting: `mode` is none of "auto", "min", "max", or it is needed and not given.
    """
    if mode not in _MODES:
        raise InvalidSetting("mode", repr(mode), 'choose "auto", "min" or "max"')
    lower = lowers(monitor) if _MODES[mode] is None else _MODES[mode]
    if lower is None:
        advice = f'the name {monitor!r} does not tell whether lower is better: give mode="min" or mode="max"'
        raise InvalidSetting("mode", repr(mode), advice)
    return Objective(((monitor, lower),))


def by_rule(logs: Mapping[str, Any], *, bare: bool = True) -> Objective | None:
    """What these logs offer for comparing; None if they hold nothing that was measured on other data.

    Args:
        logs: What was measured, by name.
        bare: Were numbers without a stage in their names measured on other data, too?
    """
    stages = HELD_OUT + (("",) if bare else ())
    offered = [name for name in logs if stage(name) in stages and not counts(name)]
    try:
        chosen = primary(dict.fromkeys(offered, 0.5))  # by the names alone: a bad first epoch decides nothing
    except InvalidMetric:  # none, several rivals, or a name that does not tell its direction
        losses = [name for name in offered if metric(name, 0.5, True).name == "loss"]
        return Objective(((losses[0], True),)) if losses else None
    name = next(name for name in offered if metric(name, 0.5, True).name == chosen.name)
    return Objective(((name, chosen.lower_is_better),))


def numbers(logs: Mapping[str, Any]) -> dict[str, float]:
    """What of the logs the zoo takes: numbers that can be so."""
    taken = {}
    for name, value in logs.items():
        try:
            taken[name] = number(name, value)
        except InvalidMetric:  # NaN, or out of its range: no reason to lose the rest
            continue
    return taken
