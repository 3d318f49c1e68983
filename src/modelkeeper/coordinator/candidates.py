"""What is asked of a query, and which models of the zoo could answer it?"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from modelkeeper.graph import Graph
from modelkeeper.matching import Prepared
from modelkeeper.meta import Query
from modelkeeper.policy.credit import Credit
from modelkeeper.policy.quality import Metric, Peers, gap, standing
from modelkeeper.policy.selection import Candidate
from modelkeeper.zoo.records import Record, Viewer

UNFINISHED = 0.8  # of its standing is what a model counts for whose training was not ended

Group = tuple[str, str, str, bool]  # as `Record.group`


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


@dataclass
class Pool:
    """What a search found: models that could become the parent, and how far the search went."""

    considered: int  # models that passed the filters
    aligned: int = 0  # architectures that were compared with the child
    proven: bool = True  # False: the search was cut short
    records: dict[str, Record] = field(default_factory=dict)  # by id
    candidates: dict[str, Candidate] = field(default_factory=dict)  # the same models as policies see them
    peers: dict[Group, Peers] = field(default_factory=dict)
    credits: dict[str, Credit] = field(default_factory=dict)  # by id, how far claims are believed


def as_candidate(
    record: Record, similarity: float, peers: Mapping[Group, Peers], credit: Credit
) -> Candidate:
    """A model of the zoo as policies see it."""
    metric = place = memorised = None
    if record.value is not None:
        metric = Metric(record.metric, record.value, record.lower_is_better)
        place = standing(metric, peers[record.group]) * (1.0 if record.finished else UNFINISHED)
        memorised = gap(record.metrics, metric)
    return Candidate(
        id=record.id,
        name=record.name,
        similarity=similarity,
        metric=metric,
        standing=place,
        gap=memorised,
        data=record.data,
        task=record.task,
        created=record.created,
        credit=credit.factor,
    )


def same_task(parent: Record, query: Query) -> bool:
    """Do a parent and a model predict the same things?"""
    return parent.data == query.data and parent.task == (query.task or parent.task)
