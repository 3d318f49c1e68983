"""Which values of a package can be changed after they were built?"""

import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator

from msgspec import Struct


def changeable(package: str) -> Iterator[str]:
    """The names of its structs and dataclasses that are not frozen."""
    root = importlib.import_module(package)
    modules = [module.name for module in pkgutil.walk_packages(root.__path__, f"{package}.")]
    for name in modules:
        for value in vars(importlib.import_module(name)).values():
            if isinstance(value, type) and value.__module__ == name:
                struct = issubclass(value, Struct) and not value.__struct_config__.frozen
                plain = dataclasses.is_dataclass(value) and not value.__dataclass_params__.frozen  # type: ignore[attr-defined]
                if struct or plain:
                    yield value.__name__
