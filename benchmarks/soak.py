"""Does a service lose anything, or refuse anybody honest, while it is killed and attacked?

    python -m benchmarks.soak --seconds 300 --clients 8

Honest clients register and query while the service is killed (SIGKILL) and restarted at random, and while
somebody with a token holds idle connections and unfinished bodies, asks heavily, announces models that never
come, sends garbage and tries tokens. At the end:

    every model whose registration was acknowledged is there, with the weights that were sent (checksums)
    every model that waits in a spool can be sent
    every answer with weights had just the weights of its parent
    every client went on to the end, and none was refused

What a client sees of a kill is a cold start or a model that waits, never anything else.

    python -m benchmarks.soak --replicas --seconds 600

The same of three coordinators over one PostgreSQL and one S3 (SeaweedFS) behind nginx, as deploy/compose.yaml
has them, with 16 clients and nobody hostile: every 10 s one of them is killed or told to stop, and between
two of these PostgreSQL or S3 is killed and started again, or S3 hangs. Checksums of all that was acknowledged
are read back from the store itself, and every client must have succeeded after every fault.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import quantiles
from typing import Any

from benchmarks.helpers.soaking import Tally, soak
from benchmarks.helpers.soaking_replicas import soak_replicas, waits
from modelkeeper.server.connections import room_for

CALLS = ("query", "register", "download")
RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--clients", type=int, help="default: 8, or 16 of several coordinators")
    parser.add_argument("--seed", type=int, default=os.getpid())
    parser.add_argument("--idle", type=int, default=1_100, help="connections that say nothing")
    parser.add_argument("--friendly", action="store_true", help="nobody means harm; nothing is written down")
    parser.add_argument("--replicas", type=int, nargs="?", const=3, default=0, help="so many coordinators")
    options = parser.parse_args()
    options.clients = options.clients or (16 if options.replicas else 8)
    room_for(options.idle + 1_000, more_files=True)
    with tempfile.TemporaryDirectory(prefix="modelkeeper-soak-") as folder:
        tally, more = (_replicas if options.replicas else _one)(options, Path(folder))
    found = {
        "seconds": options.seconds,
        "clients": options.clients,
        "counts": dict(sorted(tally.counts.items())),
        "wrong": tally.wrong,
        **more,
        "seconds of honest calls": {what: _summary(tally.seconds(what)) for what in CALLS},
    }
    for what, count in sorted(tally.counts.items()):
        print(f"{count:8,}  {what}")
    for what in (*more, "seconds of honest calls"):
        print(f"{what}: {found[what]}")
    for problem in tally.wrong:
        print(f"WRONG: {problem}")
    if not options.friendly:
        results = RESULTS / ("soak-replicas.json" if options.replicas else "soak.json")
        results.write_text(json.dumps(found, indent=2) + "\n")
        if options.replicas:
            results.with_suffix(".md").write_text(_page(found))
    sys.exit(1 if tally.wrong else 0)


def _one(options: argparse.Namespace, folder: Path) -> tuple[Tally, dict[str, Any]]:
    """One service, attacked."""
    tally = soak(
        options.seconds,
        options.clients,
        folder,
        options.seed,
        hostile=not options.friendly,
        idle=options.idle,
        between_kills=(30.0, 60.0),
    )
    return tally, {"most memory of the service, MB": round(tally.memory / 1e6)}


def _replicas(options: argparse.Namespace, folder: Path) -> tuple[Tally, dict[str, Any]]:
    """Several services over one PostgreSQL and one S3, of which all parts fail in turn."""
    tally = soak_replicas(options.seconds, options.clients, folder, options.seed, replicas=options.replicas)
    return tally, {
        "replicas": options.replicas,
        "seconds until a client's next success after a fault": waits(tally, options.clients),
    }


def _page(found: dict[str, Any]) -> str:
    """The figures of several coordinators, to be read."""
    counts, waited = found["counts"], found["seconds until a client's next success after a fault"]
    rows = [
        f"| {what} | {counts[f'fault: {what}']} | {times['half']} | {times['all']} |"
        for what, times in waited.items()
    ]
    calls = [
        f"| {what} | {counts.get(f'{what}: unreachable in a fault', 0)} | "
        + " | ".join(str(times.get(share, "")) for share in ("half", "99 %", "all"))
        + " |"
        for what, times in found["seconds of honest calls"].items()
    ]
    sent, later = counts.get("registered", 0), counts.get("sent later", 0)
    return f"""# Several coordinators while all parts fail

`make soak ARGS=--replicas`: {found["replicas"]} coordinators over one PostgreSQL and one S3 behind nginx
(round robin), {found["clients"]} clients, faults for {found["seconds"]:g} s. All of it on one machine, so
that times are upper bounds; counts are exact.

- {sent + later:,} models acknowledged, of which {later:,} waited in a spool and were sent later;
  {counts.get("models at the end", 0):,} in the catalog at the end, with checksums read back from the store.
- {counts.get("compared", 0):,} models lent as they are, or downloaded, were compared with what they must be.
- {len(found["wrong"])} wrong: lost, other bytes, damaged, a client refused, or one that did not go on.

| fault | times | seconds until a client's next success: half | all |
| --- | --- | --- | --- |
{chr(10).join(rows)}

| call | failed in a fault | seconds, of those that succeeded: half | 99 % | all |
| --- | --- | --- | --- | --- |
{chr(10).join(calls)}
"""


def _summary(times: list[float]) -> dict[str, float]:
    """What of all honest calls of a kind half, 99 of 100 and all took at most, in seconds."""
    if len(times) < 2:
        return {}
    cuts = quantiles(times, n=100)
    return {"half": round(cuts[49], 3), "99 %": round(cuts[98], 3), "all": round(max(times), 3)}


if __name__ == "__main__":
    main()
