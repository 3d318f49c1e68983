"""What is a thing that can be imported, and what does a kind of things promise?

    Thing      a file or a folder that holds one model: found by `scan`, nothing of it is read yet
    Source     what a kind makes of it: a model, or a graph with weights, and what is said of it
    Kind       finds things in folders and files, and opens them: one module of `kinds` each
    Opened     described, ready to be registered

A kind imports its framework when it opens something, through a front end or an integration.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from modelkeeper.graph import Graph
    from modelkeeper.importing.factories import Factory
    from modelkeeper.weights import Array

WEIGHTS = "weights"  # the kind of files that need a factory

# Names of files that say nothing of the model in them: it is then called as its folder is.
_COMMON = frozenset(
    "model pytorch_model weights state_dict checkpoint best last final best_model adapter_model".split()
)


class Shape(NamedTuple):
    """An input to make up: its sizes and its dtype."""

    sizes: tuple[int, ...]
    dtype: str = "float32"


@dataclass(frozen=True)
class Thing:
    """A file or a folder that holds one model."""

    kind: str  # a name of `kinds.KINDS`
    path: Path  # what a user would call it by
    files: tuple[Path, ...]  # the model is what their bytes are
    name: str
    problem: str = ""  # why it cannot be imported; "": it can be tried
    advice: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)  # what lies beside it says of it
    within: str = ""  # a tool in whose folder it lies: "MLflow"

    @property
    def source(self) -> Path:
        """What is opened: the first of its files, or the folder of them."""
        return self.files[0]


@dataclass(frozen=True)
class Terms:
    """How things are opened."""

    factory: "Factory | None" = None  # makes the model that weights belong to
    graph: "Graph | None" = None  # or is that model's graph
    shapes: tuple[Shape, ...] = ()  # of example inputs; empty: found from the model
    trust: bool = False  # may code that lies in files be run?


@dataclass
class Source:
    """A model, or a graph with weights, and what its files say of it."""

    model: Any = None
    graph: "Graph | None" = None
    tensors: "Iterable[tuple[str, Array]] | None" = None  # of a graph
    inputs: Any = None  # what the model runs on, if its files say so
    meta: Mapping[str, Any] = field(default_factory=dict)
    program: bytes = b""
    notes: tuple[str, ...] = ()  # what a user should know of it
    name: str = ""  # what it is called if `meta` does not say; "": as its class


@dataclass
class Opened:
    """A model that was read and described."""

    name: str
    graph: "Graph"
    tensors: "Iterable[tuple[str, Array]]"
    meta: dict[str, Any]
    program: bytes
    notes: tuple[str, ...]
    model: Any = None  # None: only its graph is known


@dataclass(frozen=True)
class Listing:
    """A folder: its files and folders by name."""

    path: Path
    files: Mapping[str, Path]
    folders: Mapping[str, Path]
    named: str = ""  # what a model in it is called; "": as the folder

    @classmethod
    def of(cls, path: Path, named: str = "") -> "Listing":
        """List a folder. What is hidden is left out, and folders that are only linked to.

        Raises:
            OSError: It cannot be read.
        """
        files, folders = {}, {}
        for entry in sorted(path.iterdir()):
            if not entry.name.startswith("."):
                if entry.is_dir():
                    if not entry.is_symlink():
                        folders[entry.name] = entry
                elif entry.is_file():
                    files[entry.name] = entry
        return cls(path, files, folders, named)


@dataclass(frozen=True)
class Claim:
    """What a kind found in a folder."""

    things: tuple[Thing, ...] = ()
    files: frozenset[str] = frozenset()  # names that are no business of other kinds
    whole: bool = False  # nobody needs to look any further, not into its folders either


class Kind(Protocol):
    """One kind of things."""

    name: str  # for people: "Hugging Face"

    def claim(self, folder: Listing) -> Claim | None:
        """What a folder holds of this kind; None: nothing."""

    def holds(self, content: str) -> bool:
        """Is a single file with this content of this kind?"""

    def open(self, thing: Thing, terms: Terms) -> Source:
        """Read a thing.

        Raises:
            ModelKeeperError: It cannot be used; the message says what to do.
        """


def name_of(file: Path) -> str:
    """What a model in a file is called: as the file, or as its folder if the file's name says nothing."""
    stem = file.name.partition(".safetensors")[0] if ".safetensors" in file.name else file.stem
    stem = stem.removesuffix(".bin.index").removesuffix(".index")
    if stem.lower() in _COMMON:
        folder = file.absolute().parent.name
        return folder or stem
    return stem or file.name
