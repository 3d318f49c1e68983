"""Which files hold the parts of one model? Those that an index names.

shards(index)           the files, in order, as far as they are there; and the names of those that are not
"""

from pathlib import Path

from modelkeeper.importing.beside import read_json

INDICES = (".safetensors.index.json", ".bin.index.json", ".pt.index.json", ".pth.index.json")


def shards(index: Path) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """The files that an index names and that lie beside it, and the names of those that do not."""
    said = read_json(index)
    table = said.get("weight_map") if isinstance(said, dict) else None
    names = (
        sorted({name for name in table.values() if isinstance(name, str)}) if isinstance(table, dict) else []
    )
    files = {name: index.parent / name for name in names if name == Path(name).name}
    there = tuple(path for path in files.values() if path.is_file())
    return there, tuple(name for name in names if name not in files or not files[name].is_file())


def shards_problem(there: tuple[Path, ...], missing: tuple[str, ...]) -> str:
    """Why a model in parts cannot be read; "" if all are there."""
    if missing:
        return f"{len(missing)} of its {len(there) + len(missing)} parts are not there: {missing[0]}"
    return "" if there else "its index names no parts"
