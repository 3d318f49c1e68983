"""How is the service doing? Numbers for Prometheus, under /metrics."""

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

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
        self.evictions = Counter("modelkeeper_evictions", "Models evicted.", registry=registry)
        registry.register(_Zoo(coordinator))

    def answered(self, answer: Answer) -> None:
        """Count the answer to a query."""
        self.queries.labels("cold" if answer.cold else "warm").inc()
        if answer.similarity is not None:
            self.similarity.observe(answer.similarity)
        for stage, seconds in answer.seconds.items():
            self.stages.labels(stage).observe(seconds)

    def text(self) -> bytes:
        """All numbers as Prometheus reads them."""
        return generate_latest(self._registry)


class _Zoo:
    """The size of the zoo, counted when it is asked for."""

    def __init__(self, coordinator: ServedCoordinator) -> None:
        self._coordinator = coordinator

    def describe(self) -> Iterator[Metric]:
        return iter(())  # or registering would count the zoo

    def collect(self) -> Iterator[Metric]:
        stats: dict[str, Any] = self._coordinator.stats()
        for name, key in (("models", "models"), ("zoo_bytes", "bytes"), ("architectures", "architectures")):
            yield GaugeMetricFamily(f"modelkeeper_{name}", f"{key} in the zoo.", value=stats[key])
