"""What becomes of a fault of the keeper? A warning, and training goes on; or the error, if that is wanted.

    faults = Faults("cold")
    with faults.guard("The model starts cold") as trouble:
        ...
    if trouble: ...                  what went wrong, in a line

Wrong use (a typo in `meta`, an unknown framework) is an error at once, since nobody else could notice it.
"""

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator

from modelkeeper.errors import (
    InvalidMeta,
    InvalidMetric,
    InvalidSetting,
    ModelRefused,
    NotFinite,
    UnknownFramework,
    UnknownModel,
)
from modelkeeper.text import first_line, one_line

_OWN_CODE = (os.path.dirname(__file__) + os.sep, contextlib.__file__)  # files that a warning does not name

# What the caller did wrong, as opposed to what happened to the keeper or to the training.
WRONG_USE: tuple[type[Exception], ...] = (
    InvalidMeta,
    InvalidMetric,
    InvalidSetting,
    UnknownFramework,
)
# A registration names its parents; a query nobody that must be there: what it misses went meanwhile.
WRONG_REGISTRATION = (*WRONG_USE, UnknownModel)


class KeeperWarning(UserWarning):
    """The keeper could not help, or could not keep a model. Training goes on."""


class Faults:
    """What becomes of a fault of the keeper: a warning, or the error itself."""

    def __init__(self, on_error: str) -> None:
        """Take "cold" (warn) or "raise".

        Raises:
            InvalidSetting: It is neither.
        """
        if on_error not in ("cold", "raise"):
            raise InvalidSetting("on_error", repr(on_error), 'choose "cold" or "raise"')
        self._raise = on_error == "raise"

    @contextlib.contextmanager
    def guard(
        self, consequence: str, wrong_use: tuple[type[Exception], ...] = WRONG_USE
    ) -> Iterator[list[str]]:
        """Let no fault of the keeper reach the training: warn instead. Yields what went wrong.

        A metric that is not finite is no wrong use: the training has diverged, which is an outcome.
        """
        trouble: list[str] = []
        try:
            yield trouble
        except Exception as problem:
            if self._raise or (isinstance(problem, wrong_use) and not isinstance(problem, NotFinite)):
                raise
            text = str(problem).strip().partition("\n")[0] if isinstance(problem, ModelRefused) else ""
            trouble.append(text or first_line(problem))
            warn(f"{consequence}. {trouble[0]}")


def warn(text: str) -> None:
    """Warn, and point to the user's own code."""
    warnings.warn(one_line(text), KeeperWarning, stacklevel=_outside())


def _outside() -> int:
    """How far up the stack, seen from who warns, is the user's code."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OWN_CODE):
        frame, level = frame.f_back, level + 1
    return level
