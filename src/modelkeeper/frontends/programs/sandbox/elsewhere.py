"""What does it take to have an engine in another process?"""

from typing import NamedTuple


class Elsewhere(NamedTuple):
    """Where an engine is, and what it needs."""

    engine: str  # "module:name"
    environment: tuple[tuple[str, str], ...] = ()  # variables
