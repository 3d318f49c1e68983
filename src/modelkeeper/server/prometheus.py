"""How is the service doing? Numbers for Prometheus, under /metrics.

What is called `modelkeeper_zoo_…` is the zoo's, and the same at every replica: take one of them, or the
maximum. All else counts what this replica did: take the sum.
"""

import os
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector

from modelkeeper.coordinator.base import ServedCoordinator
from modelkeeper.warmstart.answer import Answer

_TENTHS = [tenth / 10 for tenth in range(1, 11)]
_SECONDS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30]


class Metrics:
    """The counters of one service."""

    def __init__(self, coordinator: ServedCoordinator) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter(
            "modelkeeper_requests", "Requests.", ["method", "route", "status"], registry=registry
        )
        self.seconds = Histogram(
            "modelkeeper_request_seconds",
            "Time from a request to the end of its reply.",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.queries = Counter("modelkeeper_queries", "Queries by result.", ["result"], registry=registry)
        self.similarity = Histogram(
            "modelkeeper_similarity", "Similarity of parents found.", buckets=_TENTHS, registry=registry
        )
        self.stages = Histogram(
            "modelkeeper_query_seconds", "Time by stage.", ["stage"], buckets=_SECONDS, registry=registry
        )
        self.bytes = Counter("modelkeeper_bytes", "Bytes of weights.", ["direction"], registry=registry)
        self.registered = Counter("modelkeeper_registered", "Models registered.", registry=registry)
        self.refused = Counter("modelkeeper_refused", "Models refused.", registry=registry)
        self.evictions = Counter("modelkeeper_evictions", "Models evicted.", registry=registry)
        self._zoo = _Zoo(coordinator)

    def answered(self, answer: Answer) -> None:
        """Count the answer to a query; what only looks (a dry run, an explanation) starts nothing."""
        if answer.dry_run:
            return
        self.queries.labels("cold" if answer.cold else "warm").inc()
        if answer.similarity is not None:
            self.similarity.observe(answer.similarity)
        for stage, seconds in answer.seconds.items():
            self.stages.labels(stage).observe(seconds)

    def text(self) -> bytes:
        """All numbers as Prometheus reads them; where several workers count, those of all: see `workers`."""
        counted = self._registry
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            counted = CollectorRegistry()
            MultiProcessCollector(counted)  # type: ignore[no-untyped-call]
        of_zoo = CollectorRegistry()
        of_zoo.register(self._zoo)
        return generate_latest(counted) + generate_latest(of_zoo)


class _Zoo:
    """The size of the zoo and who leads, read when it is asked for."""

    def __init__(self, coordinator: ServedCoordinator) -> None:
        self._coordinator = coordinator

    def describe(self) -> Iterator[Metric]:
        return iter(())  # or registering would count the zoo

    def collect(self) -> Iterator[Metric]:
        stats: dict[str, Any] = self._coordinator.stats()
        for key in ("models", "bytes", "architectures"):
            yield GaugeMetricFamily(f"modelkeeper_zoo_{key}", f"{key} in the zoo.", value=stats[key])
        leader = GaugeMetricFamily("modelkeeper_zoo_leader", "Who tidies up the zoo.", labels=["leader"])
        if stats["leader"]:
            leader.add_metric([stats["leader"]], 1)
        yield leader
