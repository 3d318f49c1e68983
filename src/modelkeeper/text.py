"""How are numbers, times and foreign text written for people?

size(1_234_567)      1.2 MB
count(11_173_962)    11.2 M
counted(2, "model")  2 models
ago(7_300)           2 h ago
printable(text)      nothing that would steer the terminal it lands on: `errors.words`
one_line(text)       the same without line breaks
enumeration(names)   A, B and C
first_line(error)    ValueError: what a user's own code raised, in one line
"""

from collections.abc import Sequence

from modelkeeper.errors.words import one_line, printable

__all__ = ["ago", "count", "counted", "enumeration", "first_line", "one_line", "printable", "size"]
_STEPS = ((60.0, "s"), (60.0, "min"), (24.0, "h"), (30.4, "d"), (12.0, "months"))


def enumeration(names: Sequence[str], word: str = "and") -> str:
    """Names, one after the other: A, or A and B, or A, B and C."""
    return f" {word} ".join([*([", ".join(names[:-1])] if names[1:] else []), *names[-1:]])


def first_line(error: Exception) -> str:
    """The type of an error and the first line of its message: foreign ones may be pages long."""
    text = printable(str(error).strip().partition("\n")[0][:300])
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def size(count: float) -> str:
    """Bytes."""
    return _scaled(count, 1000.0, ("B", "kB", "MB", "GB", "TB", "PB"))


def counted(number: int, one: str) -> str:
    """How many of something there are, by the word for one: "1 model", "1,200 models"."""
    return f"{number:,} {one}" + ("" if number == 1 else "s")


def count(number: float) -> str:
    """A number of parameters."""
    return _scaled(number, 1000.0, ("", "k", "M", "G", "T"))


def ago(seconds: float) -> str:
    """How long something is past; a clock that runs ahead makes it now."""
    if seconds < 1:
        return "now"
    unit = "years"
    for step, name in _STEPS:
        if round(seconds) < step:
            unit = name
            break
        seconds /= step
    return f"{seconds:.0f} {unit} ago"


def _scaled(number: float, step: float, units: tuple[str, ...]) -> str:
    for unit in units[:-1]:
        if number < 10 and unit != units[0]:
            return f"{number:.1f} {unit}"
        if round(number) < step:
            return f"{number:.0f} {unit}".rstrip()
        number /= step
    return f"{number:,.1f} {units[-1]}"


def with_article(word: str) -> str:
    """A word behind "a" or "an"."""
    return f"{'an' if word[:1].lower() in tuple('aeiou') else 'a'} {word}"
