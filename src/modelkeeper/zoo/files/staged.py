"""A file of weights that somebody sent: does it hold what it should? It is hostile until checked."""

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from modelkeeper.errors import InvalidWeights
from modelkeeper.weights import CHUNK, Header, open_file, without_nan
from modelkeeper.zoo.files.folders import Written


class Staged(Struct, frozen=True):
    """Where it lies, and what was written there."""

    path: Path
    written: Written
    source: str = ""  # the object of the store that holds just these bytes, if there is one

    def check(self, header: Header) -> None:
        """Does it hold just the tensors of this header, wherever they lie in it, and no NaN?

        Raises:
            InvalidWeights: It does not.
        """
        weights = open_file(self.path)
        sent, wanted = weights.header.tensors, header.tensors
        for name in dict.fromkeys((*wanted, *sent)):
            if name not in sent or name not in wanted:
                problem = "it is missing" if name in wanted else "nobody asked for it"
                raise InvalidWeights(name[:200], problem)
            tensor, expected = sent[name], wanted[name]
            if (tensor.dtype, tensor.shape) != (expected.dtype, expected.shape):
                wrong = f"{tensor.dtype} of shape {tensor.shape}"
                raise InvalidWeights(name, f"{wrong} instead of {expected.dtype} {expected.shape}")
        for _ in without_nan(weights.items()):
            pass  # looking is all that is wanted

    def chunks(self) -> Iterator[bytes]:
        """Its bytes, piece by piece."""
        with self.path.open("rb") as file:
            while piece := file.read(CHUNK):
                yield piece
