"""How does a rule get the name by which operations of the vocabulary ask for it?

RULES: dict[str, Rule] = {}
rule = registering(RULES)

@rule("reshape")
def _reshape(...): ...
"""

from collections.abc import Callable
from typing import TypeVar

R = TypeVar("R")


def registering(table: dict[str, R]) -> Callable[[str], Callable[[R], R]]:
    """A decorator that puts a function into a table, under a name."""

    def named(name: str) -> Callable[[R], R]:
        def register(rule: R) -> R:
            assert name not in table, f"two rules are called {name!r}"
            table[name] = rule
            return rule

        return register

    return named
