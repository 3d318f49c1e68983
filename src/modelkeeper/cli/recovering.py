"""Commands for bad days: back a zoo up, restore it, and see whether all of it is what was registered."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modelkeeper.cli.options import console, echo_json, json_option, progress, say
from modelkeeper.errors import InvalidSetting

if TYPE_CHECKING:
    from modelkeeper.zoo.zoo import Zoo

_zoo = click.option(
    "--zoo",
    envvar="MODELKEEPER_URI",
    metavar="FOLDER",
    help="The folder of the zoo. Default: the variable MODELKEEPER_URI, or ~/.modelkeeper.",
)
_catalog = click.option(
    "--catalog", metavar="URL", help="A SQLAlchemy URL of the catalog. Default: a file in the folder."
)
_blobs = click.option("--blobs", metavar="URL", help="A folder or URL for weights. Default: the folder.")
_to_folder = click.argument("folder", metavar="BACKUP", type=click.Path(path_type=Path, file_okay=False))


@click.command()
@_to_folder
@click.option("--keep", type=click.IntRange(1), metavar="N", help="Delete all but the N newest snapshots.")
@click.option("--verify", "compare", is_flag=True, help="Compare files that were copied earlier, too.")
@_zoo
@_catalog
@_blobs
@json_option()
def backup(
    folder: Path,
    keep: int | None,
    compare: bool,
    zoo: str | None,
    catalog: str | None,
    blobs: str | None,
    as_json: bool,
) -> None:
    """Copy a zoo into the folder BACKUP, while it is in use.

    What was copied earlier is not copied again. Each run adds a snapshot of the catalog, by which
    `modelkeeper restore` makes the zoo as it was; weights and programs are compared with their checksums on
    the way. The exit code is 1 if models had to be left out, since their files are damaged.

    \b
      modelkeeper backup /backups/zoo --zoo zoo/
      modelkeeper backup /backups/zoo --keep 7 --json
    """
    from modelkeeper.zoo.care import backup as backups

    with _opened(zoo, catalog, blobs) as opened, progress("copying", in_bytes=True, silent=as_json) as bar:
        done = backups.backup(opened, folder, keep=keep, verify=compare, progress=bar)
    if as_json:
        echo_json(done.to_dict())
    else:
        from modelkeeper.cli import tables

        console().print(tables.backed_up(done))
    if done.left_out:
        sys.exit(1)


@click.command()
@_to_folder
@click.option("--at", metavar="SNAPSHOT", default="", help="Which snapshot. Default: the newest.")
@click.option("--list", "only_list", is_flag=True, help="Name the snapshots, the newest last, and stop.")
@_zoo
@_catalog
@_blobs
@json_option()
def restore(
    folder: Path,
    at: str,
    only_list: bool,
    zoo: str | None,
    catalog: str | None,
    blobs: str | None,
    as_json: bool,
) -> None:
    """Make a zoo of the folder BACKUP, as `modelkeeper backup` wrote it.

    The zoo must hold no models; its catalog and its store may be of another kind than those that were backed
    up. A restore that was interrupted goes on with the files that it has. The exit code is 1 if the backup
    lacks the files of some models.

    \b
      modelkeeper restore /backups/zoo --zoo restored/
      modelkeeper restore /backups/zoo --list
      modelkeeper restore /backups/zoo --at 20260101T120000.000000Z --zoo before/
    """
    from modelkeeper.zoo.care.archive import Archive
    from modelkeeper.zoo.care.backup import restore as restore_zoo

    if only_list:
        names = Archive(folder).snapshots()
        echo_json(names) if as_json else say("\n".join(names) or "There are none.")
        return
    with progress("copying", in_bytes=True, silent=as_json) as bar:
        done = restore_zoo(folder, _settings(zoo, catalog, blobs), at=at, progress=bar)
    if as_json:
        echo_json(done.to_dict())
    else:
        from modelkeeper.cli import tables

        console().print(tables.restored(done))
    if done.missing:
        sys.exit(1)


@click.command()
@click.option("--quick", is_flag=True, help="Look at the sizes of weights alone, and do not read them.")
@_zoo
@_catalog
@_blobs
@json_option()
def verify(quick: bool, zoo: str | None, catalog: str | None, blobs: str | None, as_json: bool) -> None:
    """See whether all that a zoo holds is what was registered: records, graphs, weights and programs.

    The zoo may be in use, and nothing is changed. The exit code is 1 if something is damaged or cannot be
    read: `modelkeeper gc --verify` takes damaged models out, `modelkeeper restore` has them again.

    \b
      modelkeeper verify --zoo zoo/
      modelkeeper verify --quick --json
    """
    from modelkeeper.zoo.care.verify import verify as look

    with _opened(zoo, catalog, blobs) as opened, progress("reading", in_bytes=True, silent=as_json) as bar:
        report = look(opened, quick=quick, progress=bar)
    if as_json:
        echo_json(report.to_dict())
    else:
        from modelkeeper.cli import tables

        console().print(tables.report(report))
    if not report.whole:
        sys.exit(1)


def _settings(zoo: str | None, catalog: str | None, blobs: str | None) -> Any:
    """The settings of a zoo whose files can be read from here."""
    from modelkeeper.settings import Settings, is_address

    if zoo is not None and is_address(zoo):
        advice = (
            "this command reads the files of a zoo: run it where they are, with the folder or with --catalog "
            "and --blobs. Of a service, an administrator can ask `modelkeeper gc --verify`"
        )
        raise InvalidSetting("--zoo", repr(zoo), advice)
    return Settings.read(home=zoo, catalog=catalog, blobs=blobs)


@contextlib.contextmanager
def _opened(zoo: str | None, catalog: str | None, blobs: str | None) -> "Iterator[Zoo]":
    """A zoo that is there."""
    from modelkeeper.coordinator import open_local

    settings = _settings(zoo, catalog, blobs)
    given = {"catalog": settings.catalog or None, "blobs": settings.blobs or None}
    with contextlib.closing(open_local(settings.home or None, make=False, **given)) as coordinator:
        yield coordinator.zoo


COMMANDS = (backup, restore, verify)
