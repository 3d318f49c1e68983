"""Has this been imported before? A thing's id in a zoo is made of its bytes.

    next(ids_of(thing, "my_models:make", ""))        16 hexadecimal digits

The same bytes, read with the same factory, have the same id, wherever they lie. The second and further ids
are for what was removed in between.
"""

import hashlib
import itertools
from collections.abc import Iterator

from modelkeeper.importing.things import Thing

_DIGITS = 16


def ids_of(thing: Thing, model: str, keeper: str) -> Iterator[str]:
    """The ids that a thing may have in a zoo, the first before the others.

    Args:
        thing: All bytes of its files are read.
        model: The factory that it is read with.
        keeper: Who keeps it to himself; "" if all may see it.

    Raises:
        OSError: A file cannot be read.
    """
    digest = hashlib.sha256("\0".join((thing.kind, model, keeper)).encode())
    for path in thing.files:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    for turn in itertools.count():
        yield hashlib.sha256(digest.digest() + turn.to_bytes(4, "big")).hexdigest()[:_DIGITS]
