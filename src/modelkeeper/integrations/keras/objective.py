"""By which number of Keras' logs is a training compared with others?

    by_name("val_f1", "max")       what the user says
    of_tuner(oracle.objective)     what a tuner looks for, several objectives added up as it does
    by_rule(logs)                  neither: val_accuracy; else the only other val_ metric; else val_loss

Numbers without `val_` were measured on the data trained on, so that the rule never takes them: in a zoo they
would stand beside honest ones under the same name. A user who names one takes it.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from modelkeeper.errors import InvalidMetric, InvalidSetting
from modelkeeper.policy.quality import Metric, lowers, metric, number, primary

HELD_OUT = "val_"
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
    """What the user says, in the words of Keras' own callbacks.

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


def of_tuner(objective: Any) -> Objective | None:
    """What a tuner of KerasTuner looks for; None if it was not told, and trials return a number."""
    parts = getattr(objective, "objectives", [objective])
    found = tuple((part.name, part.direction == "min") for part in parts)
    return None if found == (("default_objective", True),) else Objective(found)


def by_rule(logs: Mapping[str, Any]) -> Objective | None:
    """What these logs offer for comparing; None if they hold nothing that was measured on other data."""
    held_out = {name: value for name, value in logs.items() if name.startswith(HELD_OUT)}
    loss = HELD_OUT + "loss"
    try:
        chosen = primary(
            dict.fromkeys(held_out, 0.5)
        )  # by the names alone: a bad first epoch decides nothing
    except InvalidMetric:  # none, several rivals, or a name that does not tell its direction
        return Objective(((loss, True),)) if loss in held_out else None
    name = next(name for name in held_out if metric(name, 0.5).name == chosen.name)
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
