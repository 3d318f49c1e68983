"""Which start learns fastest? The race itself: heats, ranking, verdicts, whatever the framework.

    race(frontend.trials, model, {"warm": weights, "cold": {}}, batches, Terms(loss, optimizer)).winner

Every start trains a copy of the model, made by the front end's `Trials`, which also sees to it that model,
optimizer and random generators bear no trace. `rules` says how long a heat is and who is better.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from modelkeeper.errors import CannotProbe
from modelkeeper.frontends.protocol import FEWEST_BATCHES, Batch, Trial, Trials
from modelkeeper.warmstart.race.rules import COLD, STEPS, Race, Runner, heats, ranked, score, worthwhile


@dataclass(frozen=True)
class Terms:
    """What a race is run by: the user's training, and how much may be spent."""

    loss: Any = None  # of outputs and labels; None: the outputs' own
    optimizer: Any = None  # one that was built on the model, or what makes one; None: the front end's choice
    steps: int = STEPS  # of all starts together, at most
    seconds: float | None = None  # after so long no step is begun, and the ranking so far decides


def race(
    trials: Trials,
    model: Any,
    starts: Mapping[str, Mapping[str, Any]],
    batches: Sequence[Batch],
    terms: Terms,
    *,
    parents: Mapping[str, str] | None = None,
) -> Race:
    """Let starts of a model race on labelled batches; the model stays as it is.

    Args:
        trials: Of the model's front end.
        model: What all of them start.
        starts: Weights by name, the favourite first, and "cold" among them. What weights do not name is as
            the model has it, so those of a cold start may be empty.
        batches: What `trials.labelled` made of the user's.
        terms: Loss, optimizer, steps and seconds.
        parents: Whose weights a start is made of, to be reported.

    Raises:
        CannotProbe: The model cannot be copied, a step fails, or no start has a loss that is a number.
    """
    began = time.perf_counter()
    field = _Field(trials, model, starts, batches, terms)
    rivals = [name for name in starts if name != COLD]
    for heat, (until, going_on) in enumerate(heats(len(rivals), len(batches), terms.steps), 1):
        field.run(rivals, until)
        order = ranked({name: field.losses[name] for name in rivals})
        for name in order[going_on:]:
            field.drop(name, heat)
        rivals = [name for name in rivals if name in order[:going_on]]
    (best,) = rivals
    winner = field.winner(best)
    runners = [field.runner(name, (parents or {}).get(name, ""), winner) for name in starts]
    runners.sort(
        key=lambda run: (run.start != winner, -run.steps, math.inf if run.loss is None else run.loss)
    )
    steps = sum(runner.steps for runner in runners)
    return Race(winner, tuple(runners), steps, time.perf_counter() - began)


class _Field:
    """The starts on their way: their copies of the model, and their losses so far."""

    def __init__(
        self,
        trials: Trials,
        model: Any,
        starts: Mapping[str, Mapping[str, Any]],
        batches: Sequence[Batch],
        terms: Terms,
    ) -> None:
        self.losses: dict[str, list[float]] = {name: [] for name in starts}
        self._trials, self._model, self._starts, self._batches = trials, model, starts, batches
        self._terms = terms
        self._end = math.inf if terms.seconds is None else time.perf_counter() + terms.seconds
        self._running: dict[str, Trial] = {}
        self._out: dict[str, int] = {}  # the heat that was a start's last

    def run(self, rivals: Sequence[str], until: int) -> None:
        """Train rivals and the cold start up to a batch, batch by batch, so that time cuts all alike."""
        for number in range(len(self.losses[COLD]), until):
            if number >= FEWEST_BATCHES and time.perf_counter() > self._end:
                break
            for name in (*rivals, COLD):
                if name not in self._running:
                    self._running[name] = self._trials.trial(
                        self._model, self._starts[name], self._terms.loss, self._terms.optimizer
                    )
                self.losses[name].append(self._running[name].step(self._batches[number]))

    def drop(self, name: str, heat: int) -> None:
        """A start is out; its copy of the model goes."""
        self._out[name] = heat
        del self._running[name]

    def winner(self, best: str) -> str:
        """The best rival, if it is ahead of the cold start by enough.

        Raises:
            CannotProbe: Neither has a loss that is a number.
        """
        try:
            return best if worthwhile(self.losses[best], self.losses[COLD]) else COLD
        except ValueError:
            problem = "no start has a loss that is a number"
            raise CannotProbe(problem, "Look at the loss and at the data") from None

    def runner(self, name: str, parent: str, winner: str) -> Runner:
        """How a start ran, now that the race is over."""
        losses = self.losses[name]
        first, loss = (value if math.isfinite(value) else None for value in (losses[0], score(losses)))
        return Runner(name, parent, len(losses), first, loss, self._verdict(name, winner))

    def _verdict(self, name: str, winner: str) -> str:
        if math.isinf(score(self.losses[name])):
            return "its loss is no number"
        if name == winner:
            return "taken"
        if name in self._out:
            return f"out in heat {self._out[name]}"
        return "not taken" if name == COLD else "not ahead of a cold start by enough"
