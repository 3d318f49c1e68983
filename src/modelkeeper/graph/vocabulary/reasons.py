"""Why is the width of a space not free, and what is an axis that has no units? Codes and their sentences."""

from msgspec import Struct

# Why the width of a space is not free. {where}: at which operation; {detail}: what just there.
REASONS = {
    "output": "output",
    "rows": "rows",
    "never_read": "never read",
    "opaque": "opaque {where}",
    "window": "opaque {where}: a window over units",
    "reshape": "opaque reshape in {where}: {detail}",
    "sizes": "opaque: sizes {detail} meet in {where}",
    "itself": "opaque: an axis would hold itself in {where}",
    "factors": "opaque: factors {detail} do not refine in {where}",
    "statistic": "a statistic is taken over it together with what cannot grow alike",
    "straddled": "a cut straddles a factor in {where}",
    "shares": "no placement of shares is exact in {where}",
    "in_order": "taken in order in {where}",
    "summed": "summed up in {where}",
    "numbered": "one unit named by its number in {where}",
    "taken_apart": "taken apart in {where}",
    "one_taken": "one unit taken in {where}",
    "every_nth": "every n-th unit taken in {where}",
    "picked": "picked by index in {where}",
    "written": "written by index in {where}",
    "cut_off": "cut off by position in {where}",
    "into_space": "moved into space in {where}",
    "windowed": "a window over units in {where}",
    "groups": "groups cut across parts ({detail}) in {where}",
    "compared": "contracted between two activations in {where}",
    "attention_scale": "its size sets the scale of attention in {where}",
    "attended": "summed over by attention in {where}",
    "normalised": "normalised over in {where}",
    "other": "{detail}",
}
OPAQUE = frozenset(
    {"opaque", "window", "reshape", "sizes", "itself", "factors"}
)  # not understood: told first
MISFITS = OPAQUE - {"opaque"}  # the operation is understood, but its axes fit no space

# What an axis without units is.
ORIGINS = {
    "input": "input",
    "kernel": "kernel",
    "spatial": "spatial",
    "one": "one",
    "constant": "constant",
    "integers": "integers",
    "statistics": "statistics",
    "padding": "padding",
    "empty": "empty",
    "gates": "gates",
    "states": "states",
    "stacked": "stacked",
    "repeats": "repeats",
    "unused": "unused",
    "in_order": "taken in order",
    "picked": "picked by index",
    "every_nth": "every n-th unit",
    "from_space": "moved from space",
    "groups": "groups cut across parts",
    "alike": "rows made alike",
}


class Pin(Struct, frozen=True, array_like=True):
    """Why the width of a space is not free: a code of REASONS, at which operation, and what just there."""

    code: str
    where: str = ""
    detail: str = ""

    def __str__(self) -> str:
        sentence = REASONS.get(self.code, f"{self.code} in {{where}}")
        return sentence.replace("{where}", self.where).replace("{detail}", self.detail)
