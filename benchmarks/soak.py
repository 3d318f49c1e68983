"""Does a service lose anything while it is killed again and again?

    python -m benchmarks.soak --seconds 300 --clients 16

Clients register and query while the service is killed (SIGKILL) and restarted at random. At the end:

    every model whose registration was acknowledged is there, with the weights that were sent (checksums)
    every model that waits in a spool can be sent
    every answer with weights had just the weights of its parent
    every client went on to the end

What a client sees of a kill is a cold start or a model that waits, never anything else.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from benchmarks.helpers.soaking import soak


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seed", type=int, default=os.getpid())
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="modelkeeper-soak-") as folder:
        tally = soak(options.seconds, options.clients, Path(folder), options.seed)
    for what, count in sorted(tally.counts.items()):
        print(f"{count:8,}  {what}")
    for problem in tally.wrong:
        print(f"WRONG: {problem}")
    sys.exit(1 if tally.wrong else 0)


if __name__ == "__main__":
    main()
