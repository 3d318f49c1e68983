"""What must whatever keeps models that are being sent be able to do? Announce, write, take in, forget.

All of it may be asked of any process that serves the zoo, in any order: nothing of an upload is one's own.
"""

import contextlib
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager

import msgspec
from msgspec import Struct

from modelkeeper.coordinator.wire import UploadRequest
from modelkeeper.errors import ModelKeeperError, QuotaExceeded, TooManyRequests
from modelkeeper.logs import logger
from modelkeeper.zoo.files.staged import Staged
from modelkeeper.zoo.replicas.parts import IDLE

MOST_OPEN = 32  # uploads of one user at a time
BEAT = (
    2.0  # seconds after which whoever works on an upload says so again; of IDLE, some go by on a busy machine
)
_log = logger()


class Announced(Struct, frozen=True):
    """An upload as it was announced: whose it is, and what was said of it."""

    owner: str
    request: UploadRequest


class Sending(Struct, frozen=True):
    """An upload as it is: what was announced, in which attempt, and how many bytes are there."""

    request: UploadRequest
    owner: str
    attempt: str  # of announcements under one id, which
    offset: int


class Reserved(Struct, frozen=True):
    """What an upload takes up: all of it as announced, whether it has come or not."""

    id: str
    owner: str
    bytes: int
    attempt: str = ""


# Made while this is imported: two threads that first read a type at the same time crash msgspec.
read_announced = msgspec.json.Decoder(Announced).decode
Check = Callable[[Sequence[Reserved]], None]  # may one user have all of these under way? Raises if not


class UploadStore(ABC):
    """The models that are being sent. Safe to use from several threads and processes."""

    piece: int  # bytes that `write` is best given at a time

    def __init__(self) -> None:
        self._working: Counter[str] = Counter()
        self._lock = threading.Condition()
        self._beating = False

    @abstractmethod
    def begin(self, owner: str, request: UploadRequest, check: Check = lambda reserved: None) -> int:
        """Announce a model, and reserve room for it. How many bytes of it are there already?

        Args:
            owner: Whose model it is.
            request: The announcement; one that is repeated goes on, another one under its id begins anew.
            check: Is told all that the owner would have under way; what is idle goes until it agrees.

        Raises:
            UnknownModel: Another user sends a model under this id.
            TooManyRequests: The user sends too many models at once.
        """

    @abstractmethod
    def open(self) -> list[Reserved]:
        """What all that is announced and not finished takes up."""

    @abstractmethod
    def get(self, identity: str, owner: str | None) -> Sending:
        """What was announced, and how many bytes are there. `owner` None may see everyone's.

        Raises:
            UnknownModel: There is no such upload, or it is somebody else's.
        """

    @abstractmethod
    def announced_checksum(self, identity: str) -> str:
        """The checksum that was announced for an upload; "": there is none."""

    @abstractmethod
    def write(self, identity: str, attempt: str, offset: int, data: bytes | memoryview) -> None:
        """Add bytes at the end, which must be at `offset`: of several who try, one does.

        Raises:
            InvalidWeights: It is elsewhere, or another announcement has taken the place of this attempt.
            UnknownModel: There is no such upload.
        """

    @abstractmethod
    def flush(self, identity: str) -> None:
        """Make what is there last, while more comes."""

    @abstractmethod
    def staged(self, identity: str) -> AbstractContextManager[Staged]:
        """The whole file, while the block runs.

        Raises:
            UnknownModel: It is gone, or goes meanwhile.
        """

    def direct_url(self, sending: Sending) -> str:
        """A URL of the store to which a whole file may be put; "": there is none."""
        return ""

    def take_direct(self, sending: Sending) -> bool:
        """Let what was put there count. Is it all of the file?"""
        return False

    @abstractmethod
    def forget(self, identity: str) -> None:
        """Delete an upload; one that is not there is no error."""

    @abstractmethod
    def sweep(self, grace: float) -> int:
        """Delete what nobody has worked on for so many seconds, and for IDLE. How many?"""

    @abstractmethod
    def touch(self, identities: Collection[str]) -> None:
        """Say to all processes that somebody works on these uploads."""

    @contextlib.contextmanager
    def working(self, identity: str) -> Iterator[None]:
        """While the block runs, an upload is nobody's leftover, whichever process looks."""
        self.touch([identity])
        with self._lock:
            self._working[identity] += 1
            if not self._beating:
                self._beating = True
                threading.Thread(target=self._beat, name="modelkeeper-uploads", daemon=True).start()
        try:
            yield
        finally:
            with self._lock:
                self._working[identity] -= 1
                self._working += Counter()  # those that nobody works on go
                if not self._working:
                    self._lock.notify_all()

    def _beat(self) -> None:
        """Touch what is worked on, until there is nothing."""
        while True:
            with self._lock:
                self._lock.wait_for(lambda: not self._working, BEAT)
                working = tuple(self._working)
                self._beating = bool(working)
            if not working:
                return
            try:
                self.touch(working)
            except ModelKeeperError as problem:
                _log.warning("uploads under way: %s", problem)


def make_room(new: Reserved, others: Sequence[tuple[Reserved, float]], check: Check) -> list[Reserved]:
    """Which other uploads of the same user go, so that there is room? Idle ones, the oldest first.

    `others` come with the seconds for which nobody has worked on them.

    Raises:
        QuotaExceeded: There is none, whatever went.
    """

    def allowed(beside: Sequence[Reserved]) -> None:
        if len(beside) >= MOST_OPEN:
            problem = f"{MOST_OPEN} models are being sent already"
            raise TooManyRequests(problem, "Finish or delete some first, or wait.", f"{IDLE:g}")
        check([*beside, new])

    allowed([])  # or nobody's going would help
    by_age = sorted((pair for pair in others if pair[1] > IDLE), key=lambda pair: -pair[1])
    idle, beside = [known for known, _ in by_age], [known for known, _ in others]
    gone: list[Reserved] = []
    while True:
        try:
            allowed(beside)
            return gone
        except QuotaExceeded:
            if not idle:
                raise
            gone.append(idle.pop(0))
            beside.remove(gone[-1])
