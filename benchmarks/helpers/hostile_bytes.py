"""Bytes as an attacker would send them: documents that make sense, in which a few things were spoilt.

spoilt_json(document, chance)            values of JSON exchanged, dropped, doubled, nested
spoilt(data, chance)                     bytes flipped, cut, doubled
"""

import copy
import json
import random
from typing import Any

EDGES: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**53, 2**63 - 1, -(2**63), 2**64, 10**30, 0.5, -1e308, 1e-320, "",
    "a", "\x00", "\x1b[31m", "../../etc/passwd", "\ud800", "x" * 5000, [], {}, [[]], [None], {"": None},
]  # fmt: skip


def spoilt_json(document: Any, chance: random.Random) -> bytes:
    """A document in which up to three values are not what they were, as bytes; sometimes these are spoilt."""
    made = copy.deepcopy(document)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        made = _changed(made, chance)
    text = json.dumps(made).encode()
    if chance.random() < 0.05:
        text = text.replace(b"0", chance.choice([b"1e999", b"NaN", b"-Infinity", b"9" * 5000]), 1)
    if chance.random() < 0.02:
        text = b"[" * 20_000 + text
    return spoilt(text, chance) if chance.random() < 0.15 else text


def _changed(node: Any, chance: random.Random) -> Any:
    """The same with one value in it changed."""
    if isinstance(node, (dict, list)) and node and chance.random() < 0.9:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = chance.choice(keys)
        how = chance.random()
        if how < 0.75:
            node[key] = _changed(node[key], chance)
        elif how < 0.85:
            del node[key]
        elif isinstance(node, dict):
            node[chance.choice([f"{key}x", "format", "", "name"])] = node[key]
        else:
            node.insert(chance.randrange(len(node) + 1), node[key])
        return node
    if isinstance(node, int) and not isinstance(node, bool) and chance.random() < 0.5:
        return node + chance.choice((1, -1, 8, 2**32))
    return copy.deepcopy(chance.choice(EDGES))


def spoilt(data: bytes, chance: random.Random) -> bytes:
    """Bytes of which some are not what they were."""
    made = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8))):
        place = chance.randrange(len(made) + 1)
        how = chance.random()
        if how < 0.5 and place < len(made):
            made[place] ^= 1 << chance.randrange(8)
        elif how < 0.7:
            del made[place : place + chance.choice((1, 7, 1000))]
        elif how < 0.9:
            made[place:place] = made[place : place + 64]
        else:
            made[place:place] = chance.randbytes(chance.choice((1, 8, 64)))
    return bytes(made)
