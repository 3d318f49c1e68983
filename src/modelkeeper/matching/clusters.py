"""Which architectures of a zoo are alike? k-medoids over similarity, for zoos too large to align whole.

The medoids are found on a sample, by exact alignments of all its pairs; every other architecture joins
the medoid that its bound says it may resemble most. That is a guess, and only the order of a search
depends on it, never its answer.
"""

import io
import threading

import numpy as np
from numpy.typing import NDArray

from modelkeeper.matching.prepare import Prepared
from modelkeeper.matching.search import Clusters, Snapshot
from modelkeeper.matching.segments import Segment
from modelkeeper.matching.similarity import PARENT_SHARE


def cluster(
    snapshot: Snapshot,
    count: int = 24,
    sample: int = 128,
    seed: int = 0,
    threads: int = 1,
    stop: threading.Event | None = None,
) -> Clusters | None:
    """Clusters of a snapshot: `count` medoids, chosen among `sample` architectures. None if told to stop."""
    stop = stop or threading.Event()
    everything = [
        (number, kind)
        for number, part in enumerate(snapshot.parts)
        for kind in np.unique(part.kinds[part.alive[: part.rows]]).tolist()
    ]
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(everything), min(sample, len(everything)), replace=False)
    models = [
        snapshot.parts[number].segment.prepared(kind) for number, kind in (everything[i] for i in chosen)
    ]
    if len(models) > count:
        import kmedoids  # takes seconds where scikit-learn is installed, and few processes make clusters

        distances = _distances(models, threads, stop)
        if stop.is_set():
            return None
        found = kmedoids.fasterpam(distances, count, random_state=seed)
        models = [models[i] for i in found.medoids]
    labels = []
    for part in snapshot.parts:
        columns = part.segment.columns
        every = np.arange(part.architectures, dtype=np.int32)
        best, label = np.full(part.architectures, -1.0), np.zeros(part.architectures, np.int16)
        for number, medoid in enumerate(models):
            if stop.is_set():
                return None
            scan = part.scan(medoid, threads)
            total = PARENT_SHARE * columns["totals"][every] + (1 - PARENT_SHARE) * medoid.total
            bound = scan.bounds(every, False) / np.maximum(total, 1)
            label[bound > best] = number
            best = np.maximum(best, bound)
        labels.append(label)
    return Clusters(tuple(models), tuple(labels))


def to_bytes(clusters: Clusters) -> bytes:
    """Clusters as a file."""
    file = io.BytesIO()
    medoids = {f"medoid{i}": np.frombuffer(m.to_bytes(), np.uint8) for i, m in enumerate(clusters.medoids)}
    labels = {f"labels{i}": labels for i, labels in enumerate(clusters.labels)}
    np.savez(file, allow_pickle=False, **medoids, **labels)
    return file.getvalue()


def from_bytes(data: bytes) -> Clusters | None:
    """What `to_bytes` wrote, or None if another version of the matcher wrote it."""
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        found: dict[str, list[NDArray[np.generic]]] = {"medoid": [], "labels": []}
        for name in file.files:
            found[name.rstrip("0123456789")].append(file[name])
    medoids = [Prepared.from_bytes(medoid.tobytes()) for medoid in found["medoid"]]
    labels = tuple(label.astype(np.int16) for label in found["labels"])
    known = tuple(medoid for medoid in medoids if medoid is not None)
    return Clusters(known, labels) if len(known) == len(medoids) else None


def _distances(models: list[Prepared], threads: int, stop: threading.Event) -> NDArray[np.float64]:
    """One minus the similarity of each pair, the mean of both ways round. A pair is aligned one way only."""
    store = Segment()
    place = [
        store.columns["kinds"][row] for row in (store.add(key, model) for key, model in enumerate(models))
    ]
    which = np.array(place, np.int32)
    totals = np.array([model.total for model in models], np.float64)
    similarity = np.ones((len(models), len(models)))
    for i, model in enumerate(models):
        if stop.is_set():
            break
        scan = store.scan(model, store.architectures, store.tokens, threads)
        scores = scan.scores(which[i + 1 :])
        lent = PARENT_SHARE * totals[i + 1 :] + (1 - PARENT_SHARE) * model.total
        received = PARENT_SHARE * model.total + (1 - PARENT_SHARE) * totals[i + 1 :]
        mean = (scores / np.maximum(lent, 1) + scores / np.maximum(received, 1)) / 2
        similarity[i, i + 1 :] = similarity[i + 1 :, i] = np.minimum(mean, 1.0)
    distances: NDArray[np.float64] = 1.0 - similarity
    return distances
