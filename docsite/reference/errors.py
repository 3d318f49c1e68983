"""The errors in docs/troubleshooting.md: cause, remedy, code and status of each class, as the classes say.

    python -m docsite.reference.errors        writes them into the page

The page lies in the repository, since messages name it; a test holds it to the classes.
"""

from pathlib import Path

from docsite.repository import ROOT
from modelkeeper.errors import PAGE, ModelKeeperError, kinds

PLACE = ROOT / PAGE
BEGIN = "<!-- errors: made by `python -m docsite.reference.errors` -->"


def filled(page: str) -> str:
    """The page with what the classes say now, behind what people wrote."""
    written, mark, _ = page.partition(BEGIN)
    if not mark:
        raise ValueError(f"{PAGE} has no place for the errors: {BEGIN}")
    return "\n".join([written + mark, "", *map(section, sorted(kinds(), key=lambda kind: kind.code))])


def section(kind: type[ModelKeeperError]) -> str:
    """One class of errors."""
    above = kind.__mro__[1]
    kindred = (
        f", a kind of [{above.code}](#{above.code})"
        if above is not ModelKeeperError and issubclass(above, ModelKeeperError)
        else ""
    )
    status = f" A service answers {kind.status}." if kind.status != ModelKeeperError.status else ""
    cause = " ".join(str(kind.__doc__).split())
    return (
        f"### {kind.code}\n\n`{kind.__name__}`{kindred}. {cause}{status}\n\n**What to do:** {kind.remedy}\n"
    )


def write(place: Path = PLACE) -> None:
    """Bring the page up to date."""
    place.write_text(filled(place.read_text()))


if __name__ == "__main__":
    write()
