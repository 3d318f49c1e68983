"""Which store does a URL name, and what must a store be able to do?

    open_store("zoo/")                  the path of a folder on this machine; so is file:///zoo
    open_store("memory://")             a store that is gone when the process ends
    open_store("s3://bucket/prefix")    and all that obstore knows: gs://, az://, https:// ...
    register("shelf", open_shelf)       one more scheme for this process: shelf://...

A package adds a scheme by an entry point of the group `modelkeeper.stores` (see `modelkeeper.plugins`): a
function that takes the whole URL and gives a `Store`, or the path of a folder.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from obstore.store import MemoryStore, from_url

from modelkeeper.errors import ZooUnusable
from modelkeeper.plugins import Registry

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta
    from obstore.store import ClientConfig, RetryConfig
    from typing_extensions import Buffer

# A store that is down is said so while somebody still waits for the answer.
_RETRIES: "RetryConfig" = {"max_retries": 5, "retry_timeout": timedelta(seconds=20)}
DEADLINE = timedelta(seconds=20)  # of one call, which moves some megabytes at most
# What moves next to nothing, and a query waits for, is there soon or the store does not answer.
_FEW_RETRIES: "RetryConfig" = {"max_retries": 2, "retry_timeout": timedelta(seconds=5)}
SOON = timedelta(seconds=5)


class Content(Protocol):
    """An object that is being read."""

    def bytes(self) -> "Buffer":
        """All of it."""

    def stream(self) -> "Iterable[Buffer]":
        """Piece by piece."""


@runtime_checkable
class Store(Protocol):
    """Objects by path: what a zoo needs of obstore's interface. Safe to use from several threads.

    An object is whole or not there. What is missing raises FileNotFoundError, another problem OSError; the
    exceptions of obstore itself do as well.
    """

    def put(self, path: str, file: Iterator[bytes | memoryview], /) -> object:
        """Write an object, piece by piece; one that is there is replaced."""

    def get(self, path: str, /, *, options: "GetOptions | None" = None) -> Content:
        """Read an object; options may hold {"range": {"offset": n}}: from byte n on."""

    def get_range(self, path: str, /, *, start: int, length: int) -> "Buffer":
        """Read a part of an object."""

    def head(self, path: str, /) -> "ObjectMeta":
        """What is known of an object: its `size` is looked at."""

    def list(self, prefix: str, /) -> "Iterable[Sequence[ObjectMeta]]":
        """All objects below a prefix, in lots: `path` and `last_modified` are looked at."""

    def delete(self, paths: Sequence[str], /) -> object:
        """Delete objects; one that is not there is no error."""


def is_of_obstore(store: object) -> bool:
    """Is it a store of obstore, which can do more than `Store` asks for?"""
    return type(store).__module__.startswith("obstore")


def put_whole(store: Store, path: str, data: "bytes | memoryview") -> None:
    """Write an object of some megabytes, in one request where a store can."""
    if is_of_obstore(store):
        store.put(path, bytes(data), use_multipart=False)  # type: ignore[arg-type, call-arg]
    else:
        store.put(path, iter([data]))


T = TypeVar("T")
_used_in = 0  # the process, or one that it was forked from, that uses a store of obstore
Opener = Callable[[str], Store | Path]


def open_store(url: str) -> Store | Path:
    """Open the store that a URL names; for a folder on this machine, its path.

    Raises:
        InvalidSetting: What was added for its scheme is no store.
        ValueError, OSError, obstore's BaseError: There is no such store, or it cannot be reached.
    """
    scheme = url.partition("://")[0] if "://" in url else "file"
    if scheme not in STORES:
        return _unforked(url, from_url(url, retry_config=_RETRIES, client_options=_deadlines(DEADLINE)))
    opener = STORES.get(scheme)
    store = _unforked(url, opener(url) if callable(opener) else opener)
    if not isinstance(store, Store | Path):
        raise STORES.broken(scheme, f"{type(store).__name__} is no Store")
    return store


def open_brief(url: str, store: Store) -> Store:
    """The same store, for calls that move next to nothing: they fail sooner, where that can be said."""
    if url.partition("://")[0] in STORES or "://" not in url or not is_of_obstore(store):
        return store
    return from_url(url, retry_config=_FEW_RETRIES, client_options=_deadlines(SOON))


def open_at(url: str, endpoint: str) -> object:
    """The store of obstore that a URL names, at another endpoint than the environment says."""
    return _unforked(
        url, from_url(url, retry_config=_RETRIES, client_options=_deadlines(DEADLINE), endpoint=endpoint)
    )


def _deadlines(each: timedelta) -> "ClientConfig":
    """How long obstore waits for an answer; and what the environment says, which this would hide."""
    plain = os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true", "yes", "on", "y")
    return {"timeout": each, "connect_timeout": timedelta(seconds=5), "allow_http": plain}


def _unforked(url: str, store: T) -> T:
    """The same store. One of obstore has threads, which are gone after a fork: calls would never return.

    Raises:
        ZooUnusable: Such a store was used in the process that forked this one.
    """
    global _used_in
    if is_of_obstore(store):
        if _used_in not in (0, os.getpid()):
            problem = "an object store cannot be used in a process that was forked from one that used it"
            advice = "Start workers with `spawn` or `forkserver`, or let the process that forks do this."
            raise ZooUnusable(url, problem, advice)
        _used_in = os.getpid()
    return store


def register(scheme: str, opener: Opener) -> None:
    """Add a scheme of URLs for this process; one that was added before is replaced.

    Raises:
        InvalidSetting: The scheme is built in.
    """
    STORES.add(scheme, opener)


def open_folder(url: str) -> Path:
    """The path of a folder on this machine, from a path or a file:// URL."""
    return Path(url.removeprefix("file://")).absolute()


def open_memory(url: str) -> Store:
    """A new and empty store in memory, whatever the rest of the URL."""
    return MemoryStore()


STORES = Registry(
    "blobs", "modelkeeper.stores", {"file": f"{__name__}:open_folder", "memory": f"{__name__}:open_memory"}
)
