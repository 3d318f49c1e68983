"""Whom does one process find damaged, and does another find so, too? Only then a model is taken from all.

    suspicions.note(model, problem)     we find so. True: another process had found so before us
    suspicions.of_others()              what others have found, for who tidies up to look into
    suspicions.forget([model])          it was looked into

What one process reads is no proof of what lies in the store: it may be given a copy of the bucket that lags
behind, or sit behind a proxy that keeps old answers. So it sets the model aside for itself, notes a suspicion
in the catalog, and a process that reads on its own confirms it: the next one that fails at the same model, or
the leader, which looks into suspicions before it sweeps. Where the leader finds the model whole, that is said
in its log, and the suspicion is gone; the one that suspected may do so again.

Where the catalog and the store lie in one folder, its processes read the same files of one disk, and often
there is but one: there a second look of the same process decides. So it does for `gc` when somebody asks for
it: an administrator who looks through a store means what is found.
"""

import secrets
import time

import msgspec
import sqlalchemy as sa
from msgspec import Struct

from modelkeeper.zoo.catalog.catalog import Catalog
from modelkeeper.zoo.database.schema import facts

PREFIX = "suspected "


class Suspicion(Struct, frozen=True):
    """What a process found."""

    by: str
    at: float
    problem: str


class Suspicions:
    """What processes find damaged in one zoo, and the name of this one among them."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog, self._me = catalog, secrets.token_hex(8)

    def note(self, model: str, problem: str) -> bool:
        """Say that this process finds a model damaged. Did another one before it?"""
        ours = Suspicion(self._me, time.time(), problem)
        text = msgspec.json.encode(ours).decode()
        stands = self._catalog.note_fact(PREFIX + model, text, unless_known=True)
        return msgspec.json.decode(stands, type=Suspicion).by != self._me

    def of_others(self) -> dict[str, Suspicion]:
        """By model, what other processes find damaged."""
        chosen = sa.select(facts.c.name, facts.c.value).where(facts.c.name.startswith(PREFIX))
        with self._catalog.database.reading() as connection:
            found = {
                str(name).removeprefix(PREFIX): msgspec.json.decode(value, type=Suspicion)
                for name, value in connection.execute(chosen)
            }
        return {model: suspicion for model, suspicion in found.items() if suspicion.by != self._me}

    def forget(self, model: str) -> None:
        """It was looked into."""
        with self._catalog.database.writing() as connection:
            connection.execute(facts.delete().where(facts.c.name == PREFIX + model))
