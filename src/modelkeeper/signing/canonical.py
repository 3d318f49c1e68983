"""Which bytes stand for a value? One sequence for each, so that it can be hashed and signed.

    canonical({"b": 1, "a": [True, "é"]})    b'{"a":[true,"\\xc3\\xa9"],"b":1}'
    number(0.93)                             "0.93", a text: whole numbers alone are numbers here
    parsed(data)                             the value, if these are the bytes that stand for it

JSON in UTF-8: names sorted by their code points, no white space, nothing escaped that need not be, text as it
was given (not normalised). A number with a fraction is a text, the shortest decimal that reads back to the
same double: how many digits a JSON library writes, or whether 1.0 is 1, then decides nothing.
"""

import json
import math
from typing import Any

_WHOLE = 2**53  # beyond, other languages read another number


def canonical(value: Any) -> bytes:
    """The bytes that stand for plain data.

    Raises:
        ValueError: It holds a number with a fraction, a whole one that is too large, or broken text.
        TypeError: It holds something else than None, flags, whole numbers, texts, lists and mappings of them.
    """
    _check(value)
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode()


def parsed(data: bytes) -> Any:
    """The value that bytes stand for.

    Raises:
        ValueError: They are no JSON, or other bytes stand for the same value.
    """
    try:
        value = json.loads(data.decode())
        same = canonical(value) == data
    except (TypeError, RecursionError) as problem:
        raise ValueError(f"these bytes stand for nothing: {problem}") from problem
    if not same:
        raise ValueError("other bytes stand for the same value")
    return value


def number(value: float) -> str:
    """A finite number as a text: the shortest decimal that reads back to it.

    Raises:
        ValueError: It is not finite.
    """
    value = float(value)
    if not math.isfinite(value):
        raise ValueError(f"{value} is not finite")
    return repr(value)


def _check(value: Any) -> None:
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if part is None or isinstance(part, bool | str):
            continue
        if isinstance(part, int) and abs(part) <= _WHOLE:
            continue
        if isinstance(part, int | float):
            raise ValueError(f"{part!r} has to be written as a text")
        if isinstance(part, dict):
            if not all(isinstance(name, str) for name in part):
                raise TypeError("names are texts")
            waiting += part.values()
        elif isinstance(part, list | tuple):
            waiting += part
        else:
            raise TypeError(f"{type(part).__name__} is no plain data")
