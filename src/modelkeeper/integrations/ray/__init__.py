"""Ray Tune and Ray Train: trials that start from each other, and leave something when they are stopped.

from modelkeeper.integrations.ray import WarmStart, report, warm_start

def train(config):
    model = network(config)
    warm_start(model)                                    # before the optimizer
    ...
        report({"accuracy": accuracy}, model)            # instead of tune.report

warm = WarmStart("zoo/", {"data": "digits", "task": "classification"})
results = warm.tuner(train, param_space=...).fit()       # instead of tune.Tuner
"""

from modelkeeper.integrations.ray.callback import KeepTrials
from modelkeeper.integrations.ray.checkpoint import load_checkpoint, save_checkpoint
from modelkeeper.integrations.ray.process import TIME, finish, report, warm_start
from modelkeeper.integrations.ray.search import WarmStart

__all__ = [
    "TIME",
    "KeepTrials",
    "WarmStart",
    "finish",
    "load_checkpoint",
    "report",
    "save_checkpoint",
    "warm_start",
]
