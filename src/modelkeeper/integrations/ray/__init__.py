"""Ray Tune and Ray Train: trials that start from each other. Ray Serve: the service in a cluster.

from modelkeeper.integrations.ray import WarmStart, report, warm_start

def train(config):
    model = network(config)
    warm_start(model)                                    # before the optimizer
    ...
        report({"accuracy": accuracy}, model)            # instead of tune.report

warm = WarmStart("zoo/", {"data": "digits", "task": "classification"})
results = warm.tuner(train, param_space=...).fit()       # instead of tune.Tuner

serve.run(deployment().bind())                           # the service on Ray Serve

Each name is imported when it is asked for: shards of a search index need no Tune, and trials no Serve.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modelkeeper.integrations.ray.callback import KeepTrials
    from modelkeeper.integrations.ray.checkpoint import load_checkpoint, save_checkpoint
    from modelkeeper.integrations.ray.process import TIME, finish, report, warm_start
    from modelkeeper.integrations.ray.search import WarmStart
    from modelkeeper.integrations.ray.serving import deployment

_PLACES = {
    "KeepTrials": "callback",
    **dict.fromkeys(("load_checkpoint", "save_checkpoint"), "checkpoint"),
    **dict.fromkeys(("TIME", "finish", "report", "warm_start"), "process"),
    "WarmStart": "search",
    "deployment": "serving",
}

__all__ = [
    "TIME",
    "KeepTrials",
    "WarmStart",
    "deployment",
    "finish",
    "load_checkpoint",
    "report",
    "save_checkpoint",
    "warm_start",
]


def __getattr__(name: str) -> object:
    """Import what is asked for."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
