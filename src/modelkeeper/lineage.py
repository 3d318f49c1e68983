"""Which parents did a model start from, also when it has been wrapped or copied since?

A start is kept in mind by the model itself, as long as it lives, and written on it, if its front end can: a
copy (of `copy.deepcopy`, of a running average, of another process) carries it along.
"""

import contextlib
import weakref
from typing import Any

import msgspec

from modelkeeper.errors import UnknownFramework
from modelkeeper.frontends import Frontend, frontend_for
from modelkeeper.frontends.abilities import behind, mark, mark_of
from modelkeeper.warmstart.answer import Answer, Parent
from modelkeeper.zoo.records import Registration


class Starts:
    """What models started from, in one zoo. `zoo` names it, for models that come from elsewhere."""

    def __init__(self, zoo: str) -> None:
        self._zoo = zoo
        self._answers: weakref.WeakKeyDictionary[Any, Answer] = weakref.WeakKeyDictionary()

    def remember(self, model: Any, answer: Answer) -> None:
        """Keep in mind what a model started from."""
        frontend = frontend_for(model)
        with contextlib.suppress(TypeError):  # some models cannot be referred to weakly
            self._answers[behind(frontend, model)] = answer
        first, *more = [parent.id for parent in answer.parents] or [""]
        mark(frontend, model, (self._zoo, first, repr(answer.similarity or 0.0), *more))

    def remember_cold(self, model: Any, answer: Answer) -> None:
        """Keep in mind that a model started cold, unless it started from something before."""
        if self.recall(model) is None:
            with contextlib.suppress(TypeError):
                self._answers[behind(frontend_for(model), model)] = answer

    def recall(self, model: Any) -> Answer | None:
        """The start of a model, or of the one that it is a copy of, if it was in this zoo."""
        with contextlib.suppress(TypeError, ValueError, UnknownFramework):
            frontend = frontend_for(model)
            known = self._answers.get(behind(frontend, model))
            if known is not None:
                return known
            zoo, parent, similarity, *more = mark_of(frontend, model)
            if zoo == self._zoo:
                near = float(similarity)
                others = (Parent(id=other) for other in more)
                parents = (Parent(id=parent, similarity=near), *others)
                return Answer(parent=parent, similarity=near, parents=parents)
        return None


def descended(registration: Registration, answer: Answer) -> Registration:
    """What is said of a model that started so; if its parents are not said, they are those of the start."""
    registration = msgspec.structs.replace(registration, start=answer.start)
    if registration.parent:
        return registration
    first, *more = [parent.id for parent in answer.parents] or [""]
    return msgspec.structs.replace(
        registration, parent=first, more_parents=tuple(more), similarity=answer.similarity
    )


def parents_said(answer: Answer) -> str | list[str]:
    """What a model started from as `meta` says it: no id, one, or a list of several."""
    ids = [parent.id for parent in answer.parents]
    return ids if len(ids) > 1 else "".join(ids)


def name_of(frontend: Frontend, model: Any) -> str:
    """What a model is called if nobody says otherwise: by its class, whatever wraps it."""
    return type(behind(frontend, model)).__name__
