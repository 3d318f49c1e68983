"""The architecture as tests: who may import whom, what each file says of itself, and the map of them all."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "modelkeeper"
ORDER = (
    "errors",
    "text",
    "settings",
    "_native",
    "graph",
    "weights",
    "write_buffers",
    "tracing",
    "frontends",
    "matching",
    "policy",
    "transform",
    "display",
    "warmstart",
    "zoo",
    "meta",
    "coordinator",
    "server",
    "client",
    "cli",
    "testing",
    "__main__",
)
FRAMEWORKS = {"torch", "tensorflow", "keras", "jax", "onnx", "transformers"}
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


def at_import(node: ast.AST) -> Iterator[ast.AST]:
    """The statements that run when a module is imported: not those in functions, nor for type checkers."""
    for child in ast.iter_child_nodes(node):
        typing_only = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        if not typing_only and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from at_import(child)


def test_a_module_imports_only_what_comes_before_it() -> None:
    for path in sorted(PACKAGE.rglob("*.py*")):
        here = path.relative_to(PACKAGE).parts[0].partition(".")[0]
        if here not in ("__init__", "__pycache__"):
            names = {name for node in ast.walk(ast.parse(path.read_text())) for name in imported(node)}
            ours = {name.split(".")[1] for name in names if name.startswith("modelkeeper.")}
            allowed = {here, *ORDER[: ORDER.index(here)]}
            assert ours <= allowed, f"{path} imports {ours - allowed}"


def test_only_a_front_end_imports_its_framework() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        frontend = re.match(r"frontends/(\w+)[./]", path.relative_to(PACKAGE).as_posix())
        names = {
            name.partition(".")[0]
            for node in at_import(ast.parse(path.read_text()))
            for name in imported(node)
        }
        foreign = names & FRAMEWORKS - ({frontend[1]} if frontend else set())
        assert not foreign, f"{path} imports {foreign} as soon as it is imported"


def test_the_core_and_the_command_line_start_without_numpy_or_a_framework() -> None:
    code = "import sys, modelkeeper.cli, modelkeeper.graph, modelkeeper.frontends; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "rich", *FRAMEWORKS} & set(run.stdout.split())


def test_every_file_says_what_it_is_for() -> None:
    for path in files("src", "tests", "examples", "benchmarks"):
        text = (ROOT / path).read_text() if path.suffix in (".py", ".pyi", ".cpp", ".hpp") else ""
        if path.suffix in (".py", ".pyi"):
            assert ast.get_docstring(ast.parse(text)), f"{path} has no docstring"
        elif text:
            assert text.startswith("//"), f"{path} has no comment on top"


def test_the_map_names_every_file_and_no_other() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text().partition("## The map")[2]
    lines = text.partition("```\n")[2].partition("```")[0].splitlines()
    named = [line.split()[0] for line in lines]
    assert sorted({path.as_posix() for path in files("src")} - set(named)) == [], "not on the map"
    assert [name for name in named if not (ROOT / name).exists()] == [], "on the map, but not there"
    assert all(len(line.split()) > 2 for line in lines), "a file without a word about it"
