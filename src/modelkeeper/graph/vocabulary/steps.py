"""How is an operation written on an edge, and what does what is written there say of it?

read_step("max_pool2d[3x3,2x2]").halves         True
read_step("mul[0.5]").has("linear")             True: by one number
read_step("2/3").part                           (2, 3): the second of three parts
"""

import re
from functools import lru_cache

from msgspec import Struct

from modelkeeper.graph.vocabulary.operations import CURVES, TRAITS, operation


class PathStep(Struct, frozen=True):
    """One operation on an edge: `max_pool2d[3x3,2x2]`, `2/3` (a part), `mul(_,sigmoid)` (a function)."""

    text: str
    name: str
    arguments: tuple[str, ...] = ()
    function: bool = False
    part: tuple[int, int] | None = None  # the second of three parts: (2, 3)

    def has(self, trait: str) -> bool:
        """Does what is written here have a trait? What depends on its arguments counts if they say so."""
        assert trait in TRAITS, trait
        if self.part is not None:
            return trait in ("linear", "places")
        traits = operation(self.name).traits
        if trait in ("linear", "places"):
            by_number = f"{trait}_by_number" in traits and len(self.arguments) == 1 and not self.function
            return (trait in traits and not self.function) or by_number
        if trait == "rectifies":
            at_zero = "rectifies_at_zero" in traits and self.arguments == ("0",)
            return (trait in traits and self.text == self.name) or at_zero
        if trait == "keeps_zero" and self.function:
            return trait in traits and self._function_keeps_zero()
        if trait == "reduces":
            return trait in traits and bool(self.arguments)
        return trait in traits

    def _function_keeps_zero(self) -> bool:
        """Does a product, or a quotient, of functions of one value make zero of zero?"""
        if len(self.text) > _LONGEST_FUNCTION:
            return False
        operands = _split(self.text[self.text.index("(") + 1 : -1], ",")
        return any(
            all(step == "_" or read_step(step).has("keeps_zero") for step in _split(operand, ">"))
            for operand in (operands[:1] if self.name == "div" else operands)
        )

    @property
    def curve(self) -> str | None:
        """The formula of an activation, if it is a plain one."""
        return CURVES.get(self.name) if self.text == self.name else None

    @property
    def halves(self) -> bool:
        """Is it a pooling that leaves fewer places?"""
        if not self.has("pools") or not self.arguments:
            return False
        stride = self.arguments[1] if len(self.arguments) > 1 else ""
        sizes = stride if re.fullmatch(r"[0-9x]+", stride) else self.arguments[0]
        return re.fullmatch(r"[0-9x]+", sizes) is not None and set(sizes.split("x")) - {"1", ""} != set()

    @property
    def is_rms_norm(self) -> bool:
        """Is it an RMS norm, written out as a function?"""
        return _RMS_NORM.fullmatch(self.text) is not None


_RMS_NORM = re.compile(r"mul\(_,pow\[2(\.0)?\]>mean\[-1,yes\]>add\[[^]]*\]>rsqrt\)")
_STEP = re.compile(r"(?P<name>\w+)(?:\[(?P<arguments>[^]]*)\])?(?P<function>\(.*\))?")
_LONGEST_FUNCTION = 200  # characters of one that is taken apart: longer ones are nested without bound
_PART = re.compile(r"(\d+)/(\d+)")


def _split(text: str, separator: str) -> list[str]:
    """The parts of a text between separators that stand in no bracket."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


@lru_cache(maxsize=16384)
def read_step(text: str) -> PathStep:
    """An operation as it is written on an edge. What cannot be read is its own name, and has no traits."""
    part = _PART.fullmatch(text)
    if part is not None:
        return PathStep(text, text, part=(int(part[1]), int(part[2])))
    step = _STEP.fullmatch(text)
    if step is None:
        return PathStep(text, text)
    arguments = step["arguments"]
    listed = tuple(arguments.split(",")) if arguments else ()
    return PathStep(text, step["name"], listed, function=step["function"] is not None)
