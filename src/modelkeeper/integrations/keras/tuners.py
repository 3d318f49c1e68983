"""How does a tuner of KerasTuner or AutoKeras let each trial start warm? By a class derived from it.

Tuners copy callbacks for each execution of a trial, and callbacks do not see which trial it is. A derived
class does: it knows the objective, counts the executions of a trial as one training, and registers what a
trial had reached when it fails or is interrupted.
"""

from typing import TYPE_CHECKING, Any

from modelkeeper.errors import InvalidSetting
from modelkeeper.policy.objective import Objective

if TYPE_CHECKING:
    from modelkeeper.integrations.keras.callback import WarmStart


def of_tuner(objective: Any) -> Objective | None:
    """What a tuner of KerasTuner looks for; None if it was not told, and trials return a number."""
    parts = getattr(objective, "objectives", [objective])
    found = tuple((part.name, part.direction == "min") for part in parts)
    return None if found == (("default_objective", True),) else Objective(found)


def tuner_class(base: Any, warm: "WarmStart") -> Any:
    """A class like `base`, whose trials start warm.

    Raises:
        InvalidSetting: `base` is neither a class of a tuner nor one of AutoKeras' names.
    """
    chosen: Any = _named(base) if isinstance(base, str) else base
    if not isinstance(chosen, type) or not hasattr(chosen, "run_trial"):
        raise InvalidSetting(
            "tuner", repr(base), "give a class of keras_tuner or autokeras, or AutoKeras' name"
        )

    class WarmTuner(chosen):  # type: ignore[misc]  # what it derives from is known when it runs
        warm_start = warm

        def run_trial(self, trial: Any, *args: Any, **kwargs: Any) -> Any:
            """All executions of one trial."""
            kwargs["callbacks"] = [*(kwargs.get("callbacks") or []), warm]
            with warm.trial(of_tuner(self.oracle.objective), f"{self.project_name}-{trial.trial_id}"):
                return super().run_trial(trial, *args, **kwargs)

    if not hasattr(chosen, "final_fit"):
        return WarmTuner

    class WarmAutoTuner(WarmTuner):
        def final_fit(self, **kwargs: Any) -> Any:
            """The best model once more, on all data: it starts warm, but nothing measures it."""
            kwargs["callbacks"] = [*(kwargs.get("callbacks") or []), warm]
            with warm.trial(of_tuner(self.oracle.objective), f"{self.project_name}-final"):
                return super().final_fit(**kwargs)

    return WarmAutoTuner


def _named(name: str) -> Any:
    from autokeras.auto_model import TUNER_CLASSES

    if name not in TUNER_CLASSES:
        raise InvalidSetting("tuner", repr(name), f"choose one of {', '.join(sorted(TUNER_CLASSES))}")
    return TUNER_CLASSES[name]
