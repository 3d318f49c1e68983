"""Which architectures of a zoo are alike? k-medoids over similarity, for zoos too large to align whole.

The medoids are found on a sample, by exact alignments of all its pairs; every other architecture joins
the medoid that its bound says it may resemble most. That is a guess, and only the order of a search
depends on it, never its answer.
"""

import io
import threading

import numpy as np
from numpy.typing import NDArray

from modelkeeper import _native
from modelkeeper.matching.prepare import Prepared
from modelkeeper.matching.search import Clusters, Part, Snapshot
from modelkeeper.matching.segments import Segment
from modelkeeper.matching.similarity import full_score, mutual_distances


def cluster(
    snapshot: Snapshot,
    count: int = 24,
    sample: int = 128,
    seed: int = 0,
    threads: int = 1,
    stop: threading.Event | None = None,
) -> Clusters | None:
    """Group the architectures of a snapshot around `count` medoids, chosen among `sample` of them.

    None if `stop` was set on the way.
    """
    stop = stop or threading.Event()
    architectures = [
        (part, kind)
        for part in snapshot.parts
        for kind in np.unique(part.kinds[part.alive[: part.rows]]).tolist()
    ]
    rng = np.random.default_rng(seed)
    sampled = rng.choice(len(architectures), min(sample, len(architectures)), replace=False)
    medoids = [part.segment.prepared(kind) for part, kind in (architectures[i] for i in sampled)]
    if len(medoids) > count:
        distances = _distances(medoids, threads, stop)
        if stop.is_set():
            return None
        chosen = _native.medoids(distances, count)
        medoids = [medoids[i] for i in chosen]
    labels = [_nearest(part, medoids, threads, stop) for part in snapshot.parts]
    return None if stop.is_set() else Clusters(tuple(medoids), tuple(labels))


def _nearest(part: Part, medoids: list[Prepared], threads: int, stop: threading.Event) -> NDArray[np.int16]:
    """For each architecture of a part the number of the medoid that, by its bound, it may resemble most."""
    every = np.arange(part.architectures, dtype=np.int32)
    best, label = np.full(part.architectures, -1.0), np.zeros(part.architectures, np.int16)
    for number, medoid in enumerate(medoids):
        if stop.is_set():
            break
        scan = part.scan(medoid, threads)
        bound = scan.bounds(every, False) / np.maximum(full_score(part.totals, medoid.total), 1)
        label[bound > best] = number
        best = np.maximum(best, bound)
    return label


def to_bytes(clusters: Clusters) -> bytes:
    """Write clusters as the bytes of a file."""
    file = io.BytesIO()
    medoids = {f"medoid{i}": np.frombuffer(m.to_bytes(), np.uint8) for i, m in enumerate(clusters.medoids)}
    labels = {f"labels{i}": labels for i, labels in enumerate(clusters.labels)}
    np.savez(file, allow_pickle=False, **medoids, **labels)
    return file.getvalue()


def from_bytes(data: bytes) -> Clusters | None:
    """Read clusters from what `to_bytes` wrote, or None if another version of the matcher wrote it."""
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        arrays: dict[str, list[NDArray[np.generic]]] = {"medoid": [], "labels": []}
        for name in file.files:
            arrays[name.rstrip("0123456789")].append(file[name])
    read = [Prepared.from_bytes(medoid.tobytes()) for medoid in arrays["medoid"]]
    medoids = tuple(medoid for medoid in read if medoid is not None)
    labels = tuple(label.astype(np.int16) for label in arrays["labels"])
    return Clusters(medoids, labels) if len(medoids) == len(read) else None


def _distances(models: list[Prepared], threads: int, stop: threading.Event) -> NDArray[np.float64]:
    """One minus the similarity of each pair, the mean of both ways round. A pair is aligned one way only."""
    store = Segment()
    rows = [store.add(key, model) for key, model in enumerate(models)]
    which = np.array([store.columns["kinds"][row] for row in rows], np.int32)
    totals = np.array([model.total for model in models], np.float64)
    distances = np.zeros((len(models), len(models)))
    for i, model in enumerate(models):
        if stop.is_set():
            break
        scan = store.scan(model, store.architectures, store.tokens, threads)
        scores = scan.scores(which[i + 1 :])
        row = mutual_distances(scores, totals[i + 1 :], model.total)
        distances[i, i + 1 :] = distances[i + 1 :, i] = row
    return distances
