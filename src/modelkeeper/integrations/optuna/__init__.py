"""Warm starts for the trials of an Optuna study: what users import."""

from modelkeeper.integrations.optuna.tell import summary, tell
from modelkeeper.integrations.optuna.trials import WarmTrial, warm_trial

__all__ = ["WarmTrial", "summary", "tell", "warm_trial"]
