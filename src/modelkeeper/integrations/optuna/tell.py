"""What did the keeper do for the trials of a study? Read from the trials themselves.

study.optimize(objective, callbacks=[tell])         a line for each trial, as it ends
print(summary(study))                               a table of all trials, of all processes
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import optuna

from modelkeeper.integrations.optuna.trials import PREFIX
from modelkeeper.text import one_line

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


def tell(study: "optuna.Study", trial: "FrozenTrial") -> None:
    """Print a line when a trial ends: how good it became, how it started, what is kept of it.

    A callback for `study.optimize`.
    """
    number, *rest = _row(trial)
    print(one_line(f"trial {number}: {', '.join(text for text in rest if text)}"))


def summary(study: "optuna.Study") -> str:
    """A table of all trials: state, value, how each started, what is in the zoo of it."""
    from rich.table import Table

    from modelkeeper.display.consoles import plain
    from modelkeeper.display.tables import as_text

    table = Table("#", "state", "value", "start", "kept", title="Trials", title_justify="left")
    for trial in study.get_trials(deepcopy=False):
        table.add_row(*map(plain, _row(trial)))
    return as_text(table).rstrip()


def _row(trial: "FrozenTrial") -> tuple[str, str, str, str, str]:
    value = ", ".join(f"{value:.4g}" for value in trial.values or ())
    if not value and trial.intermediate_values:
        last = trial.intermediate_values[max(trial.intermediate_values)]
        value = f"{last:.4g} at the end"
    starts, kept = zip(*_parts(trial), strict=True)
    return str(trial.number), trial.state.name.lower(), value, _joined(starts), _joined(kept)


def _parts(trial: "FrozenTrial") -> Iterator[tuple[str, str]]:
    """How it started and what is kept of it; of a cross-validation, for each fold."""
    names = [name.removeprefix(PREFIX) for name in trial.user_attrs if name.startswith(PREFIX)]
    folds = dict.fromkeys(name.rpartition(".")[0] for name in names) or {"": None}
    for fold in folds:
        place = f"{PREFIX}{fold}." if fold else PREFIX
        facts = {
            name.removeprefix(place): fact
            for name, fact in trial.user_attrs.items()
            if name.startswith(place) and "." not in name.removeprefix(place)
        }
        start = facts.get("start", "not asked")
        if start == "warm":
            lenders = facts.get("parent_names", facts["parent_name"])
            start = f"warm from {lenders} ({facts['similarity']:.2f})"
        model = facts.get("model", "")
        state = "" if facts.get("finished", True) else " (unfinished)"
        said = f"{fold}: " if fold else ""
        yield said + start, said + (f"{model}{state}" if model else "nothing")


def _joined(texts: tuple[str, ...]) -> str:
    return "; ".join(texts)
