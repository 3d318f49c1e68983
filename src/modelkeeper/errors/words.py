"""Which letters may reach a terminal or a log? The one function that foreign text goes through at the edge.

Names, tags, errors of a server, texts of a program: whoever wrote them, none may move a cursor, set a title,
turn the order of letters round, hide letters, or begin a line of its own in a log.
"""

# Letters that are printable by their class, but show nothing.
BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | frozenset(
    chr(code)
    for first, last in ((0x180B, 0x180F), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF))
    for code in range(first, last + 1)
)
_SHOWN = "\N{REPLACEMENT CHARACTER}"


def printable(text: str) -> str:
    """The text without letters that steer a terminal or show nothing; lines stay lines.

    Controls (C0, C1), bidirectional overrides, zero-width letters, separators of lines and paragraphs and
    lone surrogates are not printable by Python's own table of Unicode.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        letter if letter == "\n" or (letter.isprintable() and letter not in BLANK) else _SHOWN
        for letter in text
    )


def one_line(text: str) -> str:
    """The same in one line: for names, and wherever a line of its own would say something else."""
    return printable(" ".join(text.splitlines()) if "\n" in text or "\r" in text else text)
