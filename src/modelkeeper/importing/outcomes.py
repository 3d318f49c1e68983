"""What became of a thing that was to be imported?"""

from dataclasses import asdict, dataclass
from typing import Any

IMPORTED, WOULD, SKIPPED, FAILED = STATUSES = ("imported", "would be imported", "skipped", "failed")


@dataclass(frozen=True)
class Outcome:
    """What became of one thing."""

    path: str
    kind: str
    name: str
    status: str  # imported, would be imported (a dry run), skipped or failed
    reason: str = ""  # why it was skipped, or failed
    id: str = ""  # in the zoo
    metric: str = ""
    value: float | None = None
    parameters: int = 0
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        return asdict(self) | {"notes": list(self.notes)}
