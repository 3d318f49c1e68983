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
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import quantiles

from benchmarks.helpers.soaking import soak
from modelkeeper.server.connections import room_for

RESULTS = Path(__file__).parent / "results" / "soak.json"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=os.getpid())
    parser.add_argument("--idle", type=int, default=1_100, help="connections that say nothing")
    parser.add_argument("--friendly", action="store_true", help="nobody means harm; nothing is written down")
    options = parser.parse_args()
    room_for(options.idle + 1_000, more_files=True)
    with tempfile.TemporaryDirectory(prefix="modelkeeper-soak-") as folder:
        tally = soak(
            options.seconds,
            options.clients,
            Path(folder),
            options.seed,
            hostile=not options.friendly,
            idle=options.idle,
            between_kills=(30.0, 60.0),
        )
    found = {
        "seconds": options.seconds,
        "clients": options.clients,
        "counts": dict(sorted(tally.counts.items())),
        "wrong": tally.wrong,
        "most memory of the service, MB": round(tally.memory / 1e6),
        "seconds of honest calls": {what: _summary(times) for what, times in tally.seconds.items()},
    }
    for what, count in sorted(tally.counts.items()):
        print(f"{count:8,}  {what}")
    for what in ("most memory of the service, MB", "seconds of honest calls"):
        print(f"{what}: {found[what]}")
    for problem in tally.wrong:
        print(f"WRONG: {problem}")
    if not options.friendly:
        RESULTS.write_text(json.dumps(found, indent=2) + "\n")
    sys.exit(1 if tally.wrong else 0)


def _summary(times: list[float]) -> dict[str, float]:
    """What of all honest calls of a kind half, 99 of 100 and all took at most, in seconds."""
    if len(times) < 2:
        return {}
    cuts = quantiles(times, n=100)
    return {"half": round(cuts[49], 3), "99 %": round(cuts[98], 3), "all": round(max(times), 3)}


if __name__ == "__main__":
    main()
