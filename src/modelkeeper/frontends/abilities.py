"""What may a front end be able to do besides? Each ability is a method or two that it has or has not.

    Arranged   a method `layouts`: says how models store their tensors, so that weights are
               written in that order when they are made, and `load` has nothing to move
    Freezing   a method `frozen`: says which tensors the user has frozen, and wants to keep
    Judging    a method `trained`: sees whether a model is trained already
    Deferring  a method `materialise`: gives memory to models that were built without
    Teamed     a method `team`: the processes that train one model together, of which one acts
               for all
    Wrapped    methods `behind`, `mark`, `mark_of`: looks behind what training tools wrap around a
               model, and knows its copies again
    Cautious   a method `prepare` of its runner: makes ready to run foreign programs in a process apart
    Choosy     a method `refuse`: says which models are not to be registered

For each there is a function that asks a front end, and does without where it cannot.
"""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from modelkeeper.frontends.protocol import Frontend

if TYPE_CHECKING:
    from modelkeeper.layouts import Layout

T = TypeVar("T")


class Arranged(Protocol):
    """A front end whose models store tensors in another order than their graphs have them."""

    def layouts(self, model: Any) -> "Mapping[str, Layout]":
        """How the model stores its tensors, by name. Those that are left out come as the graph has them.

        What is named here comes to `load` as an array, as ever, or as `Laid`: in memory of its own, in this
        layout.
        """


class Cautious(Protocol):
    """A runner that runs programs from elsewhere in a process of their own."""

    def prepare(self) -> None:
        """Begin to start that process, since it will be needed. Does not wait, and never raises."""


class Choosy(Protocol):
    """A front end that knows models whose weights alone are not what was measured."""

    def refuse(self, model: Any) -> None:
        """Let a model pass that may be registered.

        Raises:
            ModelRefused: It would be lent as something that it is not.
        """


class Freezing(Protocol):
    """A front end whose users freeze parts of a model: they are not trained, and keep their values."""

    def frozen(self, model: Any) -> "Collection[str]":
        """The names of the stored tensors that are frozen.

        What is never trained by its nature (moving statistics) is frozen if all parameters beside it are.
        """


class Judging(Protocol):
    """A front end that sees whether a model is fresh from its initialisation."""

    def trained(self, model: Any) -> str:
        """The signs that a model is trained already, in words; "" if there are none. It is quick."""


class Deferring(Protocol):
    """A front end whose models can be built without memory: `load` gives it to them, and so does this."""

    def materialise(self, model: Any) -> None:
        """Give a model memory and its own initial values, where it has none; else nothing happens.

        Raises:
            CannotMaterialise: Nothing says how a tensor is initialised. The model is then as it was.
        """


class Team(Protocol):
    """The processes that train one model together, as one of them sees it. Each of them calls.

    One of them leads: it acts, with a front end that loads into the models of all. What the act returns or
    raises comes to all of them. If an act cannot be for all, since each has a model of its own, each acts.
    """

    @property
    def divided(self) -> bool:
        """Has each process a part of the model only? Then all of them are needed to read it."""

    def write(self, act: "Callable[[Frontend], T]", patience: float) -> T:
        """Act once on a model of which each process has a copy or a part: all are equal afterwards.

        Raises:
            RanksApart: Not all called within `patience` seconds. Nobody has acted.
        """

    def read(self, act: "Callable[[Frontend], T]", patience: float) -> T:
        """Act once, without changing the model. A leader that has all of the model waits for nobody.

        Raises:
            RanksApart: Those that were needed did not call within `patience` seconds.
        """


class Teamed(Protocol):
    """A front end whose models may be trained by several processes together."""

    def team(self, model: Any) -> Team | None:
        """The processes that train a model together; None: this one alone.

        Raises:
            CannotShare: That cannot be told.
        """


class Wrapped(Protocol):
    """A front end whose models are wrapped and copied while they are trained."""

    def behind(self, model: Any) -> Any:
        """The user's own model, behind what wraps it; a model that nothing wraps is its own."""

    def mark(self, model: Any, mark: tuple[str, ...]) -> None:
        """Write a few words on a model. Copies of it have them, too; its weights and what it does do not."""

    def mark_of(self, model: Any) -> tuple[str, ...]:
        """What was last written on a model, or on the one that it is a copy of; empty if nothing was."""


def layouts_of(frontend: Frontend, model: Any) -> "Mapping[str, Layout]":
    """How a model stores its tensors; nothing if its front end does not say."""
    layouts = getattr(frontend, "layouts", None)
    return {} if layouts is None else layouts(model)


def frozen_of(frontend: Frontend, model: Any) -> "frozenset[str]":
    """Which tensors of a model are frozen; none if its front end does not say."""
    frozen = getattr(frontend, "frozen", None)
    return frozenset() if frozen is None else frozenset(frozen(model))


def trained_signs(frontend: Frontend, model: Any) -> str:
    """The signs that a model is trained already; "" if there are none, or its front end does not look."""
    trained = getattr(frontend, "trained", None)
    return "" if trained is None else trained(model)


def materialise(frontend: Frontend, model: Any) -> None:
    """Give a model memory and initial values, where it has none and its front end knows such models.

    Raises:
        CannotMaterialise: Nothing says how a tensor is initialised.
    """
    method = getattr(frontend, "materialise", None)
    if method is not None:
        method(model)


def prepare(frontend: Frontend) -> None:
    """Let a front end make ready to run foreign programs, if its runner does that in a process apart."""
    method = getattr(frontend.runner, "prepare", None)
    if method is not None:
        method()


def team_of(frontend: Frontend, model: Any) -> Team | None:
    """The processes that train a model together; None: this one alone, or its front end does not say."""
    team = getattr(frontend, "team", None)
    return None if team is None else team(model)


def behind(frontend: Frontend, model: Any) -> Any:
    """The user's own model; the one that was given if its front end knows nothing that wraps models."""
    look = getattr(frontend, "behind", None)
    return model if look is None else look(model)


def mark(frontend: Frontend, model: Any, words: tuple[str, ...]) -> None:
    """Write a few words on a model, if its front end can."""
    write = getattr(frontend, "mark", None)
    if write is not None:
        write(model, words)


def mark_of(frontend: Frontend, model: Any) -> tuple[str, ...]:
    """What was last written on a model or on what it is a copy of."""
    look = getattr(frontend, "mark_of", None)
    return () if look is None else look(model)


def refuse(frontend: Frontend, model: Any) -> None:
    """Let a model pass that may be registered; all do, if its front end has nothing against any.

    Raises:
        ModelRefused: It would be lent as something that it is not.
    """
    method = getattr(frontend, "refuse", None)
    if method is not None:
        method(model)
