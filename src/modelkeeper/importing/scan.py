"""What can be imported of a folder that holds everything mixed?

    scan([Path("runs"), Path("~/.cache/huggingface/hub")])      things, in the order of their paths

A folder is shown to each kind, which takes what it knows; of the rest, each file that could be a model is
told by what it holds. What looks like a model and cannot be read is a thing, too: with a problem, and what
to do.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from modelkeeper.errors import InvalidModelFile
from modelkeeper.importing.contents import HDF5, JSON, REFUSED, SUFFIXES, UNKNOWN, content_of, promised
from modelkeeper.importing.kinds import KINDS
from modelkeeper.importing.things import WEIGHTS, Listing, Thing, name_of

_ANYTHING = frozenset({".bin", ".h5"})  # may as well hold data
# What trainings keep beside a model.
_HELPERS = re.compile(
    r"(optim|scheduler|lr_sched|scaler|rng_state|random_states|training_args|sampler|bf16_zero)"
)
FILE = "file"  # the kind of what is of none


def scan(paths: Iterable[Path], leave_out: Path | None = None) -> list[Thing]:
    """Every thing in some files and folders, each once.

    Args:
        paths: The files and folders.
        leave_out: A folder to keep out of: the zoo that is imported into.

    Raises:
        InvalidModelFile: A path is not there, or cannot be read.
    """
    things: dict[Path, Thing] = {}
    for path in paths:
        for thing in find(path, leave_out):
            things.setdefault(thing.path.absolute(), thing)
    return list(things.values())


def find(path: Path, leave_out: Path | None = None) -> Iterator[Thing]:
    """What a file or a folder holds."""
    left_out = leave_out.resolve() if leave_out is not None else None
    try:
        if path.is_dir():
            yield from _folder(Listing.of(path), left_out)
        else:
            yield from _file(path, given=True)
    except OSError as problem:
        text = problem.strerror or str(problem)
        raise InvalidModelFile(str(path), text, "Give a file or a folder that is there") from problem


def _folder(folder: Listing, left_out: Path | None) -> Iterator[Thing]:
    if folder.path.resolve() == left_out:
        return
    taken: set[str] = set()
    for kind in KINDS.values():
        claim = kind.claim(folder)
        if claim is None:
            continue
        yield from claim.things
        if claim.whole:
            return
        taken |= claim.files
        if taken >= folder.files.keys():
            break
    for name, path in folder.files.items():
        if name not in taken and path.suffix.lower() in SUFFIXES and not _HELPERS.match(name):
            yield from _file(path, given=False)
    for path in folder.folders.values():
        yield from _folder(Listing.of(path), left_out)


def _file(path: Path, *, given: bool) -> Iterator[Thing]:
    """What a file holds; one that was not given by name may as well be something else."""
    if given and path.name.endswith(".index.json"):
        claim = KINDS[WEIGHTS].claim(Listing(path.parent, {path.name: path}, {}))
        yield from claim.things if claim else ()
        return
    content = content_of(path)
    if content == UNKNOWN:
        content = promised(path)
    for kind in KINDS.values():
        if kind.holds(content):
            yield Thing(kind.name, path, (path,), name_of(path))
            return
    if not given and path.suffix.lower() in _ANYTHING and not _of_keras(path, content):
        return
    problem, advice = REFUSED[UNKNOWN if content == JSON else content]
    yield Thing(FILE, path, (path,), name_of(path), problem, advice)


def _of_keras(path: Path, content: str) -> bool:
    """Is an HDF5 file one that Keras wrote? Its attributes then say so near its beginning."""
    if content != HDF5:
        return False
    with path.open("rb") as file:
        return path.name.endswith(".weights.h5") or b"keras_version" in file.read(1 << 16)
