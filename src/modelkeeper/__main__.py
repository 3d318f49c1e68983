"""`python -m modelkeeper`: the same as the command `modelkeeper`."""

from modelkeeper.cli import main

if __name__ == "__main__":
    main(prog_name="modelkeeper")
