"""Is this the store that the catalog belongs to? A marker in the store, whose text the catalog remembers.

    expect_own(catalog, blobs)     or WrongStore: whatever is missing here says nothing

A coordinator that was given another store finds no file of any model there. Before a missing file is
believed, and before anything is swept, the marker is compared. It is written once, when a catalog first uses
a store, and only if there is none: of two catalogs that are given one store, the second is refused, since it
would sweep what the first has written. What the catalog remembers begins with `?` until the marker is there.
A catalog and a store that lie in one folder, as they do unless somebody says otherwise, need no marker.
"""

import secrets

import sqlalchemy as sa

from modelkeeper.errors import CorruptWeights, InvalidWeights, UnreadableWeights, WrongStore
from modelkeeper.zoo.catalog.catalog import Catalog
from modelkeeper.zoo.database.schema import facts
from modelkeeper.zoo.files.blobs import Blobs
from modelkeeper.zoo.records import STORED, Filter

MARKER = "modelkeeper-store"
FACT = "store"
LOOKED_AT = 16  # models of a catalog that remembers no store, to see whether this one is its


def expect_own(catalog: Catalog, blobs: Blobs) -> None:
    """Return if the store is the catalog's; a catalog without one takes a store that no other has.

    Raises:
        WrongStore: It is another one.
        ZooUnusable: It does not answer.
    """
    known, found = _remembered(catalog), _marker(blobs)
    if known and not known.startswith("?"):
        if found != known:
            raise _wrong(blobs, known, found)
        return
    if catalog.database.read_only:
        return  # nobody has said
    if found and found != known.removeprefix("?"):
        problem = "this store is not the one that the catalog belongs to: it belongs to another catalog"
        advice = f"Give each catalog a store of its own. If that one is lost, delete {MARKER} in the store."
        raise WrongStore(blobs.url, problem, advice)
    proposed = f"?{secrets.token_hex(16)}"  # of several processes that start at once, one decides
    identity = catalog.note_fact(FACT, proposed, unless_known=True).removeprefix("?")
    if not found:
        _expect_files(catalog, blobs, identity)
        blobs.create(MARKER, identity.encode())
        found = _marker(blobs)
    if found != identity:
        raise _wrong(blobs, identity, found)
    catalog.note_fact(FACT, identity)


def own(catalog: Catalog) -> str:
    """The identity of the catalog's store; "": it has none yet."""
    known = _remembered(catalog)
    return "" if known.startswith("?") else known


def _remembered(catalog: Catalog) -> str:
    with catalog.database.reading() as connection:
        return str(connection.scalar(sa.select(facts.c.value).where(facts.c.name == FACT)) or "")


def _marker(blobs: Blobs) -> str:
    try:
        return blobs.read(MARKER)[:100].decode("ascii", "replace").strip()
    except FileNotFoundError:
        return ""


def _expect_files(catalog: Catalog, blobs: Blobs, identity: str) -> None:
    """A catalog that was made before there were markers: are its models here?"""
    newest = catalog.find(Filter(states=STORED), limit=LOOKED_AT)
    for record in newest:
        try:
            blobs.weights(record.folder, record.bytes)
            return
        except (CorruptWeights, InvalidWeights):
            continue
        except UnreadableWeights:
            return
    if newest:
        raise _wrong(blobs, identity, "")


def _wrong(blobs: Blobs, known: str, found: str) -> WrongStore:
    has = f"{MARKER} says {found[:40]!r}" if found else f"there is no {MARKER} in it"
    problem = f"this store is not the one that the catalog belongs to: {has}"
    advice = f"Give the right one (--blobs). If it is, write {known} into {MARKER} in it."
    return WrongStore(blobs.url, problem, advice)
