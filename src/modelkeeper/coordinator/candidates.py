"""What is asked of a query, and which models of the zoo could answer it?"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from modelkeeper.graph import Graph
from modelkeeper.matching import Found, Prepared
from modelkeeper.meta import Query
from modelkeeper.policy.quality import Metric
from modelkeeper.policy.selection import Candidate
from modelkeeper.policy.selection.fields import Field
from modelkeeper.policy.standings import standing_of
from modelkeeper.zoo.index.columns import Columns
from modelkeeper.zoo.index.index_sync import Followed
from modelkeeper.zoo.records import Record, Viewer

UNFINISHED = 0.8  # of its standing is what a model counts for whose training was not ended


@dataclass(frozen=True)
class Request:
    """What is asked for: the model, which parents it would take, and who asks."""

    graph: Graph
    prepared: Prepared
    query: Query
    viewer: Viewer | None = None
    runners_up: bool = False  # look for more candidates than the choice needs, to explain it
    dry_run: bool = False
    asker: Viewer | None = None  # whose models a bare name means first


@dataclass(frozen=True, kw_only=True)
class Matches:
    """The models that a search found, as arrays: what policies see of them, and what planning needs."""

    field: Field
    parameters: NDArray[np.int64]
    graph: NDArray[np.int32]  # of which this is the same, and the next, models share a plan
    same_task: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.field)

    def at(self, places: NDArray[np.bool_]) -> "Matches":
        """The models of these places."""
        return Matches(
            field=self.field.at(places),
            parameters=self.parameters[places],
            graph=self.graph[places],
            same_task=self.same_task[places],
        )

    def planned(self, plans: Iterable[tuple[str, bool]], columns: Columns) -> NDArray[np.bool_]:
        """Which of them have one of these plans, by the digest of a graph and whether tasks are the same?"""
        having = np.zeros(len(self), np.bool_)
        for graph, same in plans:
            having |= (self.graph == columns.number(graph)) & (self.same_task == same)
        return having

    def and_then(self, later: "Matches") -> "Matches":
        """These, and those of a later round."""
        numbered = replace(
            later.field, comparable=later.field.comparable + self.field.comparable.max(initial=0) + 1
        )
        return Matches(
            field=self.field.joined(numbered),
            parameters=np.concatenate([self.parameters, later.parameters]),
            graph=np.concatenate([self.graph, later.graph]),
            same_task=np.concatenate([self.same_task, later.same_task]),
        )


@dataclass
class Pool:
    """What a search found: models that could become the parent, and how far the search went."""

    considered: int  # models that passed the filters
    aligned: int = 0  # architectures that were compared with the child
    budget: int | None = None  # so many it may compare
    proven: bool = True  # False: the search was cut short
    missing: frozenset[int] = frozenset()  # shards of the index that did not answer
    matches: Matches | None = None  # all of them
    # Some of them one by one: all, unless they are many and the policy ranks arrays.
    records: dict[str, Record] = field(default_factory=dict)  # by id
    candidates: dict[str, Candidate] = field(default_factory=dict)  # the same models as policies see them


def matches_of(followed: Followed, found: Found, query: Query, viewer: Viewer | None) -> Matches:
    """What the columns say of the models that a search found."""
    columns, keys = followed.columns, found.keys
    names = ("task", "data", "metric", "lower_is_better", "value", "finished", "gap", "credit", "created")
    task, data, metric, lower, value, finished, gap, credit, created = columns.take(keys, *names)
    parameters, graph = columns.take(keys, "parameters", "graph")
    standing = np.full(len(keys), np.nan)
    groups, comparable = np.unique(np.stack([task, data, metric, lower], axis=1), axis=0, return_inverse=True)
    comparable = comparable.reshape(-1)
    for number, group in enumerate(groups.tolist()):
        members = np.flatnonzero((comparable == number) & ~np.isnan(value))
        if len(members):
            named = (columns.text(group[0]), columns.text(group[1]), columns.text(group[2]))
            peers = followed.peerage.of(named, bool(group[3]), viewer)
            standing[members] = standing_of(value[members], named[2], bool(group[3]), peers)
    same_data = data == columns.number(query.data)
    return Matches(
        field=Field(
            keys=keys,
            similarity=found.similarities,
            goodness=np.where(lower, -value, value),
            comparable=comparable,
            standing=standing * np.where(finished, 1.0, UNFINISHED),
            gap=gap,
            credit=credit,
            created=created,
            same_data=same_data & bool(query.data),
            exact=np.full(len(keys), -1, np.int8),
            rewired=np.zeros(len(keys)),
            normed=np.ones(len(keys), np.bool_),
        ),
        parameters=parameters,
        graph=graph,
        same_task=same_data & (task == columns.number(query.task) if query.task else True),
    )


def as_candidate(record: Record, field: Field, place: int) -> Candidate:
    """A model of the zoo as policies see it."""
    measured, known_gap = record.value is not None, not np.isnan(field.gap[place])
    return Candidate(
        id=record.id,
        name=record.name,
        similarity=float(field.similarity[place]),
        metric=Metric(record.metric, record.value, record.lower_is_better)
        if record.value is not None
        else None,
        standing=float(field.standing[place]) if measured else None,
        gap=float(field.gap[place]) if known_gap and measured else None,
        data=record.data,
        task=record.task,
        exact=None if field.exact[place] < 0 else bool(field.exact[place]),
        rewired=float(field.rewired[place]),
        normed=bool(field.normed[place]),
        created=record.created,
        credit=float(field.credit[place]),
    )


def same_task(parent: Record, query: Query) -> bool:
    """Do a parent and a model predict the same things?"""
    return parent.data == query.data and parent.task == (query.task or parent.task)
