"""Does this `trainer.fit` go on from a checkpoint? Lightning knows at once, but tells only later.

`trainer.ckpt_path` is set after `setup`, which is when a warm start has to be made: before optimizers. What
knows it until then is the method of the trainer that calls the hooks, so that is looked at. Where it is not
found, in another version of Lightning, the question is open, and can be asked again later.
"""

import sys
from typing import Any


def goes_on(trainer: Any) -> bool | None:
    """Does the trainer's present `fit` go on from a checkpoint? Asked inside of `setup`; None: unknown."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_name == "_run" and frame.f_locals.get("self") is trainer:
            return bool(frame.f_locals["ckpt_path"]) if "ckpt_path" in frame.f_locals else None
    return None
