"""Pages of what users can import: a page for each package, with all that it exports, by their docstrings."""

import ast
from pathlib import Path

from docsite.repository import ROOT

SOURCE = ROOT / "src" / "modelkeeper"
# What calls return, and nobody imports.
RETURNED = (
    "modelkeeper.warmstart.answer.Answer",
    "modelkeeper.run.Run",
    "modelkeeper.zoo.records.Record",
)
PACKAGES = {
    "modelkeeper": "The client, `transfer`, and what everything derives from.",
    "modelkeeper.graph": "A model without its weights: layers, tensors, axes, spaces.",
    "modelkeeper.matching": "Which layers of two models belong together? Which models are most similar?",
    "modelkeeper.transform": "What will each tensor of the child be? Plans, and carrying them out.",
    "modelkeeper.frontends": "Which front end takes a model, and how is one added?",
    "modelkeeper.frontends.torch": "PyTorch.",
    "modelkeeper.frontends.keras": "Keras 3.",
    "modelkeeper.frontends.onnx": "ONNX files.",
    "modelkeeper.importing": "Models that lie about, into a zoo.",
    "modelkeeper.sharing": "Models in one file, from one zoo to another.",
    "modelkeeper.signing": "Keys, manifests and signatures.",
    "modelkeeper.policy.selection": "Who becomes the parent? Policies, and adding one.",
    "modelkeeper.coordinator": "What stands behind a client, in this process or over HTTP.",
    "modelkeeper.testing": "Does a front end of yours keep its promises?",
    "modelkeeper.errors": "Errors, and [what to do about each](../../troubleshooting.md).",
}


def exported(module: str) -> list[str]:
    """What a package exports, without importing it."""
    path = SOURCE.joinpath(*module.split(".")[1:], "__init__.py")
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and any(
            isinstance(each, ast.Name) and each.id == "__all__" for each in node.targets
        ):
            return [str(name) for name in ast.literal_eval(node.value)]
    raise ValueError(f"{path} exports nothing: it has no __all__")


def integrations() -> list[str]:
    """The packages of all integrations."""
    folders = sorted((SOURCE / "integrations").glob("*/__init__.py"))
    return [f"modelkeeper.integrations.{path.parent.name}" for path in folders]


def pages() -> dict[str, str]:
    """All pages, by the names of their files."""
    made = {f"{module}.md": _page(module, said) for module, said in PACKAGES.items()}
    for module in integrations():
        tool = module.rpartition(".")[2]
        place = "../../keras.md" if tool == "keras" else f"../../integrations/{tool}.md"
        made[f"{module}.md"] = _page(module, f"[How it is used]({place}).")
    listed = [
        f"- [`{Path(name).stem}`]({name}): {said}"
        for name, said in zip(made, PACKAGES.values(), strict=False)
    ]
    listed += [f"- [`{module}`]({module}.md)" for module in integrations()]
    returned = "\n\n".join(f"::: {name}" for name in RETURNED)
    made["returned.md"] = f"# What calls return\n\nNobody makes them; `help()` says the same.\n\n{returned}\n"
    made["index.md"] = (
        "# Python\n\nWhat a package exports (`__all__`) is public, and what calls [return](returned.md). "
        "Everything else may change without notice.\n\n" + "\n".join(listed) + "\n"
    )
    return made


def _page(module: str, said: str) -> str:
    names = [name for name in exported(module) if not name.startswith("_")]
    constants = [name for name in names if name.isupper()]
    members = "\n\n".join(f"::: {module}.{name}" for name in names if name not in constants)
    besides = ", ".join(f"`{name}`" for name in constants)
    return f"# {module}\n\n{said}\n\n{members}\n" + (f"\n## Constants\n\n{besides}\n" if constants else "")
