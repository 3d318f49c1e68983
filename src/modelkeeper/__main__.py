"""The command `modelkeeper`, also as `python -m modelkeeper`."""

import io
import sys

from modelkeeper.errors import NotInstalled
from modelkeeper.extras import need


def main() -> None:
    """Run the command line, or say what it needs."""
    try:
        _run()
    except NotInstalled as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:  # before the command has begun, which handles it itself
        sys.exit("Aborted!")


def _run() -> None:
    need("zoo", "the command line")
    from modelkeeper.cli import main as command

    for stream in (
        sys.stdout,
        sys.stderr,
    ):  # a terminal that lacks a letter shows ?, and tables stay straight
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    command(prog_name="modelkeeper")


if __name__ == "__main__":
    main()
