"""What happens to a zoo of millions of models? Trainings arrive, start from stored ones, are kept or not.

    world = World(models=100_000, seed=0)         who trains what, day by day: the same for every way to keep
    zoo = SimulatedZoo(world, "worth")            or "lru", "fifo": how is it decided who goes?
    for day in range(365): zoo.live(day)
    zoo.report()

A model is a row of arrays; there are no graphs and no weights. Similarity comes from families: a training is
of a group (a task on a data set), in it of a family, and of that a variant; variants of a family are alike by
how far apart they are, and the same variant is the same architecture. Most groups are small; people work on
one for some weeks, and on half of them again, months later. All else is what the service does, by
its own policies: `policy.selection.benefit` says whom a training starts from, `policy.admission` whether it
is let in, `policy.standings` and `policy.retention` who goes. They are computed for a day at a time: what
comes on a day can be lent from the next day on, and peers are summed up for admission once a week.
"""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelkeeper.policy.admission import least_standing
from modelkeeper.policy.admissions import ManyPeers, outliers
from modelkeeper.policy.retention import Items, fair_shares, retain
from modelkeeper.policy.selection.base import Candidate
from modelkeeper.policy.selection.benefit import fidelity
from modelkeeper.policy.selection.fields import qualities
from modelkeeper.policy.standings import standings
from modelkeeper.settings import DAY, Settings
from modelkeeper.zoo.zoo import MANY, NEAR, SPARE

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

GROUP = 50  # models of a group, on average
AGAIN = 0.5  # of groups are worked on again
FAMILIES, VARIANTS = 12, 9  # in a group, and in a family
SIMILAR = 0.06  # what two variants next to each other lack to be the same
FAILED = 0.03  # of trainings diverge, or are on shuffled labels
WARM = 0.002  # accuracy that a warm start adds, at a benefit of 1
PINNED, PINS = 0.01, 10  # of models are pinned by their owner, but no more of one owner
FLOOD = 0.1  # of all models are one owner's, who registers whatever there is


class World:
    """Who trains what, and when. What a day brings depends on the seed and the day alone."""

    def __init__(self, models: int, seed: int, *, turnover: float = 100.0) -> None:
        """A zoo with room for about so many models, which as many trainings fill in `turnover` days."""
        self.models, self.seed, self.arrivals = models, seed, max(1, round(models / turnover))
        rng = np.random.default_rng([seed, 0])
        self.groups, self.owners = max(20, models // GROUP), max(5, models // 500)
        self._weight = rng.pareto(1.2, self.groups) + 0.05
        self._begins = rng.uniform(-60, 365, self.groups)  # days
        self._lasts = rng.lognormal(np.log(30), 0.8, self.groups)
        again = self._begins + self._lasts + rng.lognormal(np.log(120), 0.5, self.groups)
        self._again = np.where(rng.random(self.groups) < AGAIN, again, np.inf)
        self._family = rng.dirichlet(np.full(FAMILIES, 0.3), self.groups)
        self._ceiling = rng.uniform(0.6, 0.98, self.groups)
        self._effect = rng.uniform(-0.03, 0, (self.groups, FAMILIES))
        self._size = rng.lognormal(np.log(20e6), 1.2, (self.groups, FAMILIES))
        self._fan = rng.integers(1, 40, self.groups)  # how many owners a group has
        weight = (np.arange(VARIANTS) + 1.0) / VARIANTS
        self._scale = weight / weight.mean()
        self.capacity = int(
            models * float((self._size * self._family).sum(1) @ self._weight) / self._weight.sum()
        )

    def day(self, day: int) -> dict[str, Any]:
        """The trainings of a day: what is trained, whose it is, how good it gets if it starts cold."""
        rng = np.random.default_rng([self.seed, 1 + day])
        since = day - np.where(day >= self._again, self._again, self._begins)
        chance = self._weight * np.where(since >= 0, np.exp2(-np.maximum(since, 0) / self._lasts), 0)
        group = rng.choice(self.groups, self.arrivals, p=chance / chance.sum())
        reach = np.cumsum(self._family, axis=1)[group]
        family = (rng.random((self.arrivals, 1)) > reach).sum(1).clip(0, FAMILIES - 1)
        variant = np.clip(np.round(rng.normal(VARIANTS / 2, 2, self.arrivals)), 0, VARIANTS - 1).astype(
            np.int64
        )
        owner = (group * 7 + rng.integers(0, self._fan[group])) % (self.owners - 1) + 1
        owner[rng.random(self.arrivals) < FLOOD] = 0
        short = np.abs(rng.normal(0, 0.01, self.arrivals))
        short += (rng.random(self.arrivals) < FAILED) * rng.uniform(0.1, 0.5, self.arrivals)
        short += (owner == 0) * 0.02
        value = self._ceiling[group] + self._effect[group, family] + 0.002 * variant - short
        size = self._size[group, family] * self._scale[variant] * rng.uniform(0.9, 1.1, self.arrivals)
        return {
            "group": group.astype(np.int32),
            "kind": ((group * FAMILIES + family) * VARIANTS + variant).astype(np.int32),
            "owner": owner.astype(np.int32),
            "value": np.clip(value, 0, 1),
            "bytes": np.maximum(1, size).astype(np.int64),
            "pinned": rng.random(self.arrivals) < PINNED,
            "created": np.full(self.arrivals, float(day)),
            "used": np.full(self.arrivals, float(day)),
            "hits": np.zeros(self.arrivals, np.int32),
        }


def similarities() -> Floats:
    """Of each variant of a family to each."""
    variant = np.arange(VARIANTS)
    table: Floats = 1 - SIMILAR * np.abs(variant[:, None] - variant)
    return table


def fidelities() -> Floats:
    """What `benefit` says of starts of each variant from each: the same architecture is exact."""
    said = [
        [fidelity(Candidate(id="", name="", similarity=float(one), exact=bool(one == 1))) for one in row]
        for row in similarities()
    ]
    return np.array(said)


class SimulatedZoo:
    """One zoo, and one way to decide who goes."""

    def __init__(self, world: World, way: str) -> None:
        self.world, self.way = world, way
        first = world.day(0)
        self.models = {name: column[:0] for name, column in first.items()}
        self._fidelity, self._near = fidelities(), np.where(similarities() >= NEAR, similarities(), 0.0)
        settings = Settings()
        self._least, self._poor = settings.minimum_benefit, least_standing(settings.admission)
        nobody = np.zeros(0, np.int64)
        self._peers = ManyPeers.of(nobody, np.zeros(0), nobody, world.groups)
        self._standing: Floats = np.zeros(0)
        self._pinned = np.zeros(world.owners, np.int64)
        self.counted: dict[str, float] = dict.fromkeys(
            (
                "trainings",
                "warm",
                "benefit",
                "refused",
                "evicted",
                "choices",
                "choosing",
                "robbed",
                "full_day",
            ),
            0,
        )
        self._robbed = np.zeros(
            world.owners, np.bool_
        )  # within their fair share, and lost a model all the same
        self._lost = np.zeros(world.owners, np.bool_)

    @property
    def bytes(self) -> int:
        """How much room the stored models take."""
        return int(self.models["bytes"].sum())

    def live(self, day: int) -> None:
        """The trainings of a day start, end, and are registered; then room is made."""
        coming = self.world.day(day)
        self._start(coming, day)
        if day % 7 == 0:
            self._sum_up()
        self._admit(coming)
        self.models = {name: np.concatenate((column, coming[name])) for name, column in self.models.items()}
        self._standing = np.concatenate((self._standing, np.full(len(coming["group"]), 0.5)))
        self._stand()
        if self.bytes > self.world.capacity:
            self.counted["full_day"] = self.counted["full_day"] or day
            self._make_room(day)

    # -- starting -------------------------------------------------------------------------------

    def _start(self, coming: dict[str, Any], day: int) -> None:
        """Each training starts from whom most is expected of; what it reaches is a little better then."""
        kinds, kind = self.world.groups * FAMILIES * VARIANTS, self.models["kind"]
        highest, who = np.zeros(kinds), np.full(kinds, -1)
        np.maximum.at(highest, kind, self._standing)
        first = np.flatnonzero(self._standing == highest[kind])
        who[kind[first]] = first  # of equals the last
        best = np.where((who >= 0) & (highest >= self._poor), qualities(highest), 0.0)
        family, variant = np.divmod(coming["kind"].astype(np.int64), VARIANTS)
        others = family[:, None] * VARIANTS + np.arange(VARIANTS)
        expected = self._fidelity[variant] * best[others]
        chosen = expected.argmax(axis=1)
        benefit = expected[np.arange(len(chosen)), chosen]
        warm = benefit >= self._least
        parents = who[others[np.arange(len(chosen)), chosen][warm]]
        np.add.at(self.models["hits"], parents, 1)
        self.models["used"][parents] = day
        coming["value"] = np.minimum(1.0, coming["value"] + WARM * benefit * warm)
        if self.counted["full_day"]:
            self.counted["trainings"] += len(warm)
            self.counted["warm"] += int(warm.sum())
            self.counted["benefit"] += float(benefit[warm].sum())

    # -- coming ---------------------------------------------------------------------------------

    def _sum_up(self) -> None:
        """What the peers of each group are like."""
        group, owner = (self.models[name].astype(np.int64) for name in ("group", "owner"))
        self._peers = ManyPeers.of(group, self.models["value"], owner, self.world.groups)

    def _admit(self, coming: dict[str, Any]) -> None:
        """Leave out who is refused."""
        refused = outliers(
            coming["group"], coming["value"], coming["owner"].astype(np.int64), self._peers, fraction=True
        )
        self.counted["refused"] += int(refused.sum())
        for name in coming:
            coming[name] = coming[name][~refused]
        for place in np.flatnonzero(coming["pinned"]):
            owner = coming["owner"][place]
            coming["pinned"][place] = self._pinned[owner] < PINS
            self._pinned[owner] += 1

    # -- going ----------------------------------------------------------------------------------

    def _stand(self) -> None:
        """Where each model stands among its peers now."""
        began = time.process_time()
        group = self.models["group"].astype(np.int64)
        all_groups = np.zeros(self.world.groups, np.bool_)
        owner = self.models["owner"].astype(np.int64)
        counts = np.ones(len(group), np.bool_)
        self._standing = standings(group, self.models["value"], owner, counts, all_groups, ~all_groups)
        self._seconds = time.process_time() - began

    def _make_room(self, day: int) -> None:
        """Evict until what is left fits."""
        began = time.process_time()
        kept = (
            self._worthy(day)
            if self.way == "worth"
            else self._recent("used" if self.way == "lru" else "created")
        )
        self.counted["choosing"] += time.process_time() - began + self._seconds
        self.counted["choices"] += 1
        self._count(kept)
        self.models = {name: column[kept] for name, column in self.models.items()}
        self._standing = self._standing[kept]

    def items(self, day: int) -> Items:
        """The stored models as retention sees them; covered is who has a better one that is much alike."""
        kind, value = self.models["kind"].astype(np.int64), self.models["value"]
        best = np.full(self.world.groups * FAMILIES * VARIANTS, -1.0)
        np.maximum.at(best, kind, value)
        variant, covered = kind % VARIANTS, np.zeros(len(kind))
        for away in range(1 - VARIANTS, VARIANTS):
            alike = float(self._near[0, abs(away)])
            if alike:  # the same variant is as much alike as can be
                there = (variant + away >= 0) & (variant + away < VARIANTS)
                better = there & (best[np.where(there, kind + away, kind)] > value)
                np.maximum(covered, alike, out=covered, where=better)
        return Items(
            bytes=self.models["bytes"],
            standing=self._standing,
            hits=self.models["hits"].astype(np.int64),
            idle=(day - self.models["used"]) * DAY,
            pinned=self.models["pinned"],
            cover=1 - covered,
            owner=self.models["owner"].astype(np.int64),
        )

    def _worthy(self, day: int) -> NDArray[np.bool_]:
        items = self.items(day)
        spare = self.world.capacity // SPARE if len(items) > MANY else 0
        return retain(items, self.world.capacity, spare=spare).kept

    def _recent(self, column: str) -> NDArray[np.bool_]:
        """The newest, or those that were used last, and what is pinned."""
        order = np.lexsort((-self.models[column], ~self.models["pinned"]))
        kept = np.zeros(len(order), np.bool_)
        kept[order[np.cumsum(self.models["bytes"][order]) <= self.world.capacity]] = True
        return kept

    def _count(self, kept: NDArray[np.bool_]) -> None:
        """Who lost models, though they kept no more than their fair share?"""
        owner, size = self.models["owner"].astype(np.int64), self.models["bytes"]
        asked = np.zeros(self.world.owners, np.int64)
        np.add.at(asked, owner, size)
        shares = fair_shares(
            {each: int(asked[each]) for each in np.flatnonzero(asked).tolist()}, self.world.capacity
        )
        within = np.zeros(self.world.owners, np.bool_)
        within[[each for each, share in shares.items() if share >= asked[each]]] = True
        gone = ~kept
        robbed = gone & within[owner]
        self._robbed[owner[robbed]] = True
        self._lost[owner[gone]] = True
        self.counted["robbed"] += int(robbed.sum())
        self.counted["evicted"] += int(gone.sum())

    def report(self, day: int) -> dict[str, Any]:
        """What came of it, up to a day."""
        counted, age = self.counted, day - self.models["created"]
        trainings, choices = max(1.0, counted["trainings"]), max(1.0, counted["choices"])
        a_day = counted["evicted"] / max(1.0, day - counted["full_day"])
        there = np.unique(self.models["owner"])
        by_owner = np.bincount(self.models["owner"], self.models["bytes"], self.world.owners)
        return {
            "way": self.way,
            "models": len(age),
            "bytes": self.bytes,
            "full since day": int(counted["full_day"]),
            "hit rate": counted["warm"] / trainings,
            "mean benefit of a training": counted["benefit"] / trainings,
            "age, days: median": float(np.median(age)),
            "age, days: 90th percentile": float(np.quantile(age, 0.9)),
            "mean standing of what is kept": float(self._standing.mean()),
            "share of what is kept that lent": float((self.models["hits"] > 0).mean()),
            "refused": int(counted["refused"]),
            "evicted": int(counted["evicted"]),
            "evicted a day": a_day,
            "owners that lost models": int(self._lost.sum()),
            "owners that lost models within their fair share": int(self._robbed.sum()),
            "models lost within fair shares": int(counted["robbed"]),
            "owners with models": len(there),
            "largest owner's share of the bytes": float(by_owner.max() / max(1, by_owner.sum())),
            "CPU seconds of a choice": counted["choosing"] / choices,
        }
