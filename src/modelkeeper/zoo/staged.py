"""A file of weights that somebody sent: does it hold what it should? It is hostile until checked."""

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from modelkeeper.errors import InvalidWeights
from modelkeeper.weights import CHUNK, Header, open_file, without_nan
from modelkeeper.zoo.blobs import Written


class Staged(Struct, frozen=True):
    """Where it lies, and what was written there."""

    path: Path
    written: Written

    def check(self, header: Header) -> None:
        """Does it hold just the tensors of this header, wherever they lie in it, and no NaN?

        Raises:
            InvalidWeights: It does not.
        """
        weights = open_file(self.path)
        found, wanted = weights.header.tensors, header.tensors
        for name in dict.fromkeys((*wanted, *found)):
            if name not in found or name not in wanted:
                problem = "it is missing" if name in wanted else "nobody asked for it"
                raise InvalidWeights(name[:200], problem)
            theirs, ours = found[name], wanted[name]
            if (theirs.dtype, theirs.shape) != (ours.dtype, ours.shape):
                held = f"{theirs.dtype} of shape {theirs.shape}"
                raise InvalidWeights(name, f"{held} instead of {ours.dtype} {ours.shape}")
        for _ in without_nan(weights.items()):
            pass  # looking is all that is wanted

    def chunks(self) -> Iterator[bytes]:
        """Its bytes, piece by piece."""
        with self.path.open("rb") as file:
            while piece := file.read(CHUNK):
                yield piece
