"""Which model does the user's own code make? `module:name` or `module:name(literals)`.

    Factory("my_models:make(width=64)").make()                        the model
    Factory("my_models:make").make({"width": 64, "lr": 0.1})          with those that `make` takes

Only what the user's own module does is run: arguments are read as literals, never evaluated.
"""

import ast
import contextlib
import difflib
import importlib
import inspect
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from modelkeeper.errors import CannotLoadFactory, ModelKeeperError, UnknownFramework

Call = tuple[tuple[object, ...], dict[str, object]]


class Factory:
    """What makes a model, by its name. Nothing is imported before it is asked for one."""

    def __init__(self, text: str) -> None:
        """Read the name and the arguments.

        Raises:
            CannotLoadFactory: It is no `module:name`.
        """
        self.text = text
        self._module, self._path, self._call = _parse(text)

    def make(self, known: Mapping[str, object] | None = None) -> object:
        """The model that it makes, or is.

        Args:
            known: Arguments that are known of the model, by name. Those that the factory takes are passed,
                unless they are written with the factory.

        Raises:
            CannotLoadFactory: There is nothing of this name, or it raised.
        """
        from modelkeeper.frontends import frontend_for

        named = self._named()
        if self._call is None:
            with contextlib.suppress(UnknownFramework):
                frontend_for(named)
                return named  # a model already
            if not callable(named):
                return named  # no model, as the caller will find
        args, kwargs = self._call or ((), {})
        fitting = _taken(named, args, known or {}) if known else {}
        with blame(self.text, "calling it raised"):
            return named(*args, **(fitting | kwargs))

    def _named(self) -> Any:
        if "" not in sys.path:
            sys.path.insert(0, "")  # as `python -m` does: the current folder
        with blame(self.text, f"importing {self._module} raised"):
            try:
                named: Any = importlib.import_module(self._module)
            except ModuleNotFoundError as error:
                if error.name is None or not f"{self._module}.".startswith(f"{error.name}."):
                    raise  # the module is there; something that it imports is not
                raise CannotLoadFactory(
                    self.text, f"no module {error.name!r} is installed or in {os.getcwd()}"
                ) from error
        for name in self._path:
            if not hasattr(named, name):
                near = difflib.get_close_matches(name, dir(named), n=1)
                hint = f" (but {near[0]!r})" if near else ""
                raise CannotLoadFactory(
                    self.text, f"{getattr(named, '__name__', named)} has no {name!r}{hint}"
                )
            named = getattr(named, name)
        return named


def _taken(named: Any, args: tuple[object, ...], known: Mapping[str, object]) -> dict[str, object]:
    """The known arguments that a callable takes by name, and that are not given by place."""
    try:
        parameters = list(inspect.signature(named).parameters.values())
    except (TypeError, ValueError):  # written in C
        return {}
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    given = [parameter.name for parameter in parameters if parameter.kind in by_place][: len(args)]
    by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    free = {parameter.name for parameter in parameters if parameter.kind in by_name} - set(given)
    return {name: value for name, value in known.items() if name in free}


def _parse(factory: str) -> tuple[str, list[str], Call | None]:
    """Module, attribute path and arguments (None: not called) of `module:a.b(1, x=2)`."""
    module, colon, text = factory.partition(":")
    if not colon or not all(part.isidentifier() for part in module.split(".")):
        raise CannotLoadFactory(factory, "there is no module before a colon")
    try:
        node = ast.parse(text.strip(), mode="eval").body
        call: Call | None = None
        if isinstance(node, ast.Call):
            keywords = {
                keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords if keyword.arg
            }
            if len(keywords) < len(node.keywords):
                raise ValueError("**")
            call = tuple(ast.literal_eval(argument) for argument in node.args), keywords
            node = node.func
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError) as error:
        raise CannotLoadFactory(factory, "after the colon there is no name with literal arguments") from error
    path: list[str] = []
    while isinstance(node, ast.Attribute):
        path.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        raise CannotLoadFactory(factory, "after the colon there is no name with literal arguments")
    return module, [node.id, *path], call


@contextlib.contextmanager
def blame(factory: str, what: str) -> Iterator[None]:
    """Turn whatever the user's code raises into CannotLoadFactory."""
    try:
        yield
    except ModelKeeperError:
        raise
    except Exception as error:  # the user's code may raise anything
        raise CannotLoadFactory(factory, f"{what} {type(error).__name__}: {error}") from error
