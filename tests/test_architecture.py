"""The architecture as tests: who may import whom, how long a file may be, what each says of itself, and the
map of the rooms, which is in the order of imports."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

from modelkeeper.graph.vocabulary import KINDS, OPERATIONS, REASONS

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "modelkeeper"
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


def when_imported(tree: ast.AST) -> Iterator[str]:
    """The modules that a module imports as it is imported itself: not in functions, not for types alone."""
    for node in ast.iter_child_nodes(tree):
        later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if not later and not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            yield from imported(node)
            yield from when_imported(node)


def file_of(name: str) -> Path | None:
    """The file of the package that an imported name comes from: the longest name of a module in it."""
    parts = name.split(".")
    for count in range(len(parts), 1, -1):
        module = PACKAGE.parent.joinpath(*parts[:count])
        for path in (module.with_suffix(".py"), module / "__init__.py", module.with_suffix(".pyi")):
            if parts[0] == PACKAGE.name and path.is_file():
                return path.relative_to(PACKAGE)
    return None


def needs(path: Path, names: Iterator[str] | set[str]) -> set[Path]:
    """The files of the package, other than itself, that names in a file of it come from."""
    return {file for name in names if (file := file_of(name))} - {path.relative_to(PACKAGE)}


def the_map() -> list[str]:
    """The rooms on the map in CONTRIBUTING.md, in its order, by their paths; those of folders end in "/"."""
    text = (ROOT / "CONTRIBUTING.md").read_text().partition("## The map")[2]
    rooms: list[str] = []
    above: list[str] = []
    for line in text.partition("```\n")[2].partition("```")[0].splitlines():
        depth = (len(line) - len(line.lstrip())) // 4
        above = [*above[:depth], line.split()[0]]
        rooms.append("".join(above))
    return rooms


def order(folder: str) -> list[str]:
    """The names of the rooms that the map shows directly in a folder, in its order."""
    inside = [room.removeprefix(folder) for room in the_map() if room.startswith(folder)]
    return [room.strip("/").partition(".")[0] for room in inside if room.strip("/") and "/" not in room[:-1]]


def test_the_map_names_every_room_and_no_other() -> None:
    rooms = the_map()
    words = (ROOT / "CONTRIBUTING.md").read_text().partition("## The map")[2]
    assert [room for room in rooms if not (ROOT / room).exists()] == [], "on the map, but not there"
    loose = {path.as_posix() for path in files("src/modelkeeper") if len(path.parts) == 3}
    assert loose - set(rooms) == set(), "not on the map"
    folders = {path.parent.as_posix() + "/" for path in files("src") if path.suffix in (".py", ".hpp")}
    folders -= {folder for folder in folders if "/migrations/" in folder}
    unnamed = {folder for folder in folders - set(rooms) if f" {Path(folder).name}/" not in words}
    assert unnamed == set(), "not on the map, nor named in the line of its folder"


def test_a_module_imports_only_what_comes_before_it() -> None:
    rooms = order("src/modelkeeper/")
    strays = []
    for path in sorted((*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyi"))):
        here = path.relative_to(PACKAGE).parts[0].partition(".")[0]
        if here != "__init__":
            needed = {file.parts[0].partition(".")[0] for file in needs(path, names_in(path))}
            late = needed - {here, "__init__", *rooms[: rooms.index(here)]}
            strays += [f"{path.relative_to(ROOT)} imports {room}" for room in sorted(late)]
    assert not strays, listed("imports point one way, down the map in CONTRIBUTING.md", strays)


def test_rooms_within_a_room_import_only_those_before_them() -> None:
    """When they are imported; inside a function, and for types, a room may look at its neighbour."""
    strays = []
    for place in {room.rpartition("/")[0].rpartition("/")[0] for room in the_map() if room.endswith("/")}:
        rooms = order(f"{place}/") if place.startswith("src/modelkeeper/") else []
        for here in rooms:
            for path in sorted((ROOT / place / here).rglob("*.py")):
                needed = {
                    PACKAGE / file for file in needs(path, set(when_imported(ast.parse(path.read_text()))))
                }
                late = {
                    room
                    for room in rooms[rooms.index(here) + 1 :]
                    for file in needed
                    if file.is_relative_to(ROOT / place / room)
                }
                strays += [f"{path.relative_to(ROOT)} imports {room}" for room in sorted(late)]
    assert not strays, listed("rooms import from those above them on the map", strays)


def test_files_do_not_need_each_other_in_a_circle() -> None:
    needed = {
        path.relative_to(PACKAGE): needs(path, set(when_imported(ast.parse(path.read_text()))))
        for path in PACKAGE.rglob("*.py")
        if path.name != "__init__.py"
    }
    list(TopologicalSorter(needed).static_order())  # raises CycleError, which names them


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
