"""The architecture as tests: who may import whom, how long a file may be, what each says of itself, and the
map of them all, which is in the order of imports."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from modelkeeper.graph.vocabulary import KINDS, OPERATIONS, REASONS

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "modelkeeper"
ORDER = (
    "errors",
    "text",
    "drawings",
    "logs",
    "faults",
    "patience",
    "lasting",
    "extras",
    "plugins",
    "settings",
    "stepping_out",
    "_native",
    "graph",
    "weights",
    "layouts",
    "write_buffers",
    "tracing",
    "frontends",
    "matching",
    "policy",
    "transform",
    "display",
    "warmstart",
    "signing",
    "zoo",
    "meta",
    "coordinator",
    "checking",
    "server",
    "lineage",
    "run",
    "connection",
    "client",
    "integrations",
    "serve",
    "importing",
    "sharing",
    "cli",
    "testing",
    "__main__",
)
FRAMEWORKS = {"torch", "tensorflow", "keras", "jax", "onnx", "transformers"}
# Where people train.
FRAMEWORKS |= {"keras_tuner", "autokeras", "ray", "lightning", "pytorch_lightning", "accelerate", "peft"}
FRAMEWORKS |= {"optuna", "mlflow", "wandb", "tensorboard", "skorch", "fastai"}
# What the rooms of one framework may import besides it.
ALONG = {
    "keras": ("keras_tuner", "autokeras"),
    "huggingface": ("transformers", "torch", "peft", "accelerate"),
    **{tool: ("torch", tool) for tool in ("ray", "skorch", "fastai", "mlflow")},
    "lightning": ("torch", "pytorch_lightning"),
}
MOST_LINES = 400
MOST_LINES_OF_A_FUNCTION = 60
GENERATED = {"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"}


def files(*folders: str) -> list[Path]:
    """Every file of ours, as paths from the root."""
    found = [
        path.relative_to(ROOT) for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()
    ]
    return sorted(path for path in found if not GENERATED & set(path.parts) and path.suffix != ".so")


def imported(node: ast.AST) -> Iterator[str]:
    """The modules that one statement imports, by their full names."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def names_in(path: Path) -> set[str]:
    """The modules that a Python file imports anywhere, also inside functions, by their full names."""
    return {name for node in ast.walk(ast.parse(path.read_text())) for name in imported(node)}


def listed(problem: str, items: list[str]) -> str:
    """A message with one line for each item, none left out."""
    return "\n  ".join([f"{problem}:", *items])


def test_a_module_imports_only_what_comes_before_it() -> None:
    strays = []
    for path in sorted((*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyi"))):
        here = path.relative_to(PACKAGE).parts[0].partition(".")[0]
        if here != "__init__" and not GENERATED & set(path.parts):
            rooms = {name.split(".")[1] for name in names_in(path) if name.startswith("modelkeeper.")}
            allowed = {here, *ORDER[: ORDER.index(here)]}
            strays += [f"{path.relative_to(ROOT)} imports {room}" for room in sorted(rooms - allowed)]
    assert not strays, listed("imports point one way, down ORDER", strays)


def test_only_front_ends_and_integrations_import_their_framework() -> None:
    """Not even inside a function, nor for type checkers: what needs a framework belongs to one of these."""
    strays = []
    for path in sorted(PACKAGE.rglob("*.py")):
        room = re.match(r"(?:frontends|integrations)/(\w+)[./]", path.relative_to(PACKAGE).as_posix())
        foreign = {name.partition(".")[0] for name in names_in(path)} & FRAMEWORKS
        foreign -= {room[1], *ALONG.get(room[1], ())} if room else set()
        strays += [f"{path.relative_to(ROOT)} imports {name}" for name in sorted(foreign)]
    assert not strays, listed("what needs a framework belongs to its front end or integration", strays)


def test_the_core_and_the_command_line_start_without_numpy_or_a_framework() -> None:
    code = "import sys, modelkeeper.cli, modelkeeper.graph, modelkeeper.frontends; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "rich", *FRAMEWORKS} & set(run.stdout.split())


# Words of the vocabulary that mean something else, too: a role of a tensor, what an inserted tensor is, the
# name of an argument, the code of a reason, an attribute.
ALSO = set("mean zero input output scale linear norm unused empty where index gather".split())
ALSO |= {"minimum", "neg", "select", "min", "max"}  # names of ours, of metrics and their directions
RULES = ("tracing/rules/", "tracing/degrees.py", "tracing/counts.py")
SPELLING = ("graph/vocabulary/", "graph/wire_v1.py", *RULES, "frontends/")


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """The text literals of a Python file that are no docstrings, with their lines."""
    tree = ast.parse(path.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def test_operations_and_reasons_are_spelled_in_the_vocabulary_alone() -> None:
    """Outside of it, and of the rules and front ends that it is for, one asks by constants and traits."""
    names = {*OPERATIONS, *KINDS} - ALSO
    written = re.compile(rf"(?:{'|'.join(map(re.escape, sorted(names)))})(?:\[.*|\(.*)?", re.DOTALL)
    sentences = [text for reason in REASONS.values() if " " in (text := reason.partition("{")[0].strip())]
    strays = []
    for room in ("graph", "tracing", "matching", "policy", "transform", "display", "warmstart"):
        for path in sorted((PACKAGE / room).rglob("*.py")):
            place = path.relative_to(PACKAGE).as_posix()
            if not place.startswith(SPELLING):
                strays += [
                    f"{place}:{line} {text[:60]!r}"
                    for line, text in literals(path)
                    if written.fullmatch(text) or any(sentence in text for sentence in sentences)
                ]
    assert strays == [], listed("ask modelkeeper.graph.vocabulary instead", strays)


def test_every_file_says_what_it_is_for() -> None:
    for path in files("src", "tests", "examples", "benchmarks", "docsite"):
        text = (ROOT / path).read_text() if path.suffix in (".py", ".pyi", ".cpp", ".hpp") else ""
        if path.suffix in (".py", ".pyi"):
            assert ast.get_docstring(ast.parse(text)), f"{path} has no docstring"
        elif text:
            assert text.startswith("//"), f"{path} has no comment on top"


def test_no_file_is_longer_than_a_reader_can_hold() -> None:
    sources = [path for path in files("src") if path.suffix in (".py", ".pyi", ".cpp", ".hpp")]
    lengths = {path.as_posix(): len((ROOT / path).read_text().splitlines()) for path in sources}
    too_long = [f"{name}: {count} lines" for name, count in lengths.items() if count > MOST_LINES]
    assert not too_long, listed(f"above {MOST_LINES} lines: make two of each, one question a file", too_long)


def long_functions(path: Path) -> Iterator[str]:
    """The functions of a file that are too long, without a comment `# long: reason` at their top."""
    text = path.read_text()
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            count = node.end_lineno - node.lineno + 1
            above = min(part.lineno for part in (node, *node.decorator_list)) - 1
            documented = ast.get_docstring(node) is not None and len(node.body) > 1
            top = lines[above - 1 : node.body[documented].lineno]
            if count > MOST_LINES_OF_A_FUNCTION and not any(re.search(r"# long: \w", line) for line in top):
                yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {count} lines"


def test_no_function_is_long_without_a_reason() -> None:
    too_long = [function for path in sorted(PACKAGE.rglob("*.py")) for function in long_functions(path)]
    assert not too_long, listed("divide them, or say why not at the top of each: # long: ...", too_long)


# -- the map ----------------------------------------------------------------------------------------------


def map_lines() -> list[str]:
    """The lines of the map in CONTRIBUTING.md: a path, then what it is for."""
    text = (ROOT / "CONTRIBUTING.md").read_text().partition("## The map")[2]
    return text.partition("```\n")[2].partition("```")[0].splitlines()


def room_of(path: str) -> int:
    """The place in ORDER of the room that a file of src belongs to; what belongs to none comes first."""
    parts = Path(path).parts
    room = "_native" if parts[1] == "native" else parts[2].partition(".")[0]
    return ORDER.index(room) if room in ORDER else -1


def needs(path: str) -> set[str]:
    """The files of src that a file of src imports or includes."""
    if path.endswith((".cpp", ".hpp")):
        included = re.findall(r'^#include "([^"]+)"', (ROOT / path).read_text(), re.M)
        return {f"src/native/{name}" for name in included} - {path}
    if not path.endswith((".py", ".pyi")):
        return set()
    needed = set()
    for name in names_in(ROOT / path):
        parts = name.split(".")
        for count in range(len(parts), 1, -1):  # the longest name that is a module: the rest is in it
            module = "/".join(["src", *parts[:count]])
            if file := next(
                (f for f in (f"{module}.py", f"{module}/__init__.py") if (ROOT / f).exists()), None
            ):
                needed.add(file)
                break
    return needed - {path}


def reachable(start: str, edges: dict[str, set[str]]) -> set[str]:
    """All that a file needs, directly or through others."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        fresh = edges.get(waiting.pop(), set()) - seen
        seen |= fresh
        waiting.extend(fresh)
    return seen


def test_the_map_names_every_file_and_no_other() -> None:
    lines = map_lines()
    named = [line.split()[0] for line in lines]
    assert sorted({path.as_posix() for path in files("src")} - set(named)) == [], "not on the map"
    assert [name for name in named if not (ROOT / name).exists()] == [], "on the map, but not there"
    assert sorted(name for name in set(named) if named.count(name) > 1) == [], "on the map more than once"
    assert all(len(line.split()) > 2 for line in lines), "a file without a word about it"


def test_the_map_is_in_the_order_of_imports() -> None:
    """Rooms as in ORDER; `__init__.py` first in its folder; a file below those of its room that it needs."""
    named = [line.split()[0] for line in map_lines()]
    named = [name for name in named if name.startswith("src/") and (ROOT / name).is_file()]
    place = {name: number for number, name in enumerate(named)}
    wrong = []
    for above, below in pairwise(named):
        if room_of(above) > room_of(below):
            rooms = [ORDER[room_of(name)] if room_of(name) >= 0 else "no room" for name in (below, above)]
            wrong.append(f"{below} ({rooms[0]}) stands below {above} ({rooms[1]}): move the one that strayed")
    for name in named:
        folder = f"{Path(name).parent.as_posix()}/"
        early = [other for other in named[: place[name]] if other.startswith(folder)]
        if name.endswith("/__init__.py") and early and name != "src/modelkeeper/__init__.py":
            wrong.append(f"{name}: move it up, above {early[0]}: a package is said before its files")
    edges = {name: needs(name) for name in named if not name.endswith("/__init__.py")}
    for name, needed in edges.items():
        late = [
            other
            for other in needed & edges.keys()
            if room_of(other) == room_of(name)
            and place[other] > place[name]
            and name not in reachable(other, edges)  # files that need each other come in any order
        ]
        if late:
            wrong.append(f"{name}: move it down, below {max(late, key=place.__getitem__)}, which it needs")
    assert not wrong, listed("the map in CONTRIBUTING.md is not in the order of imports", wrong)
