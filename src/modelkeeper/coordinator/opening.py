"""Which coordinator does a URI name, and how is it opened?

    open("zoo/"), open(":memory:"), open("10.0.0.7", token="mk_...")    a Coordinator, wherever it is
    open_local("zoo/", capacity="20GB")                                 one that a service can be made of
    open_remote("http://10.0.0.7:7433")                                 one that waiting models are sent to
    target("zoo/").open()                                               checked now, opened later

What is not said comes from MODELKEEPER_URI, MODELKEEPER_TOKEN and the variables of `Settings`. The code of a
coordinator is imported when one is opened.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelkeeper.coordinator.base import Coordinator
from modelkeeper.errors import InvalidSetting, ZooUnusable
from modelkeeper.settings import OFF, Settings, is_address

if TYPE_CHECKING:
    from modelkeeper.coordinator.local import LocalCoordinator
    from modelkeeper.coordinator.remote import RemoteCoordinator

URI, TOKEN = "MODELKEEPER_URI", "MODELKEEPER_TOKEN"
# Settings of a client of a coordinator behind HTTP; that has its own of the others.
_OF_REMOTE = (
    *("timeout", "deadline", "patience", "spool", "sandbox", "key", "organisation", "trusted"),
    *("owners", "projects", "signed", "licences"),
)


@dataclass(frozen=True)
class Target:
    """Which zoo is meant, and how it is to be opened: checked, but not opened yet."""

    uri: str
    settings: Settings
    url: str = ""  # of a coordinator behind HTTP; "": the zoo is opened in this process
    token: str = field(default="", repr=False)

    def open(self, *, make: bool = True, user: str = "") -> Coordinator:
        """Open the coordinator: see `open`."""
        if self.url:
            return _remote(self.url, self.token, self.settings)
        return _local(self.settings, make, user)


def target(uri: str | os.PathLike[str] | None = None, *, token: str = "", **settings: Any) -> Target:
    """Check what `open` would be given.

    Raises:
        InvalidSetting: A setting is unknown, has a value that cannot work, or is not of this kind of zoo;
            or `uri` looks like an address, but is none.
    """
    unknown = {name for name in settings if name not in Settings.__struct_fields__ or name == "home"}
    if unknown:
        known = ", ".join(name for name in Settings.__struct_fields__ if name != "home")
        raise InvalidSetting("settings", ", ".join(sorted(unknown)), f"known are {known}")
    text = os.environ.get(URI, "") if uri is None else os.fspath(uri)
    if not is_address(text):
        return Target(text, Settings.read(home=text or None, **settings))
    from modelkeeper.coordinator.remote import address

    url = address(text)
    if foreign := set(settings) - set(_OF_REMOTE):
        advice = f"the coordinator at {url} has its own; set them there"
        raise InvalidSetting("settings", ", ".join(sorted(foreign)), advice)
    return Target(text, Settings.read(**settings), url, token or os.environ.get(TOKEN, ""))


def open(  # noqa: A001  # read as coordinator.open
    uri: str | os.PathLike[str] | None = None,
    *,
    token: str = "",
    make: bool = True,
    user: str = "",
    **settings: Any,
) -> Coordinator:
    """Open the coordinator of a zoo.

    Args:
        uri: A folder; ":memory:"; or an address: "10.0.0.7", "host:port", "http(s)://...". Default: the
            variable MODELKEEPER_URI, or ~/.modelkeeper.
        token: What a coordinator behind HTTP knows the caller by. Default: the variable MODELKEEPER_TOKEN.
        make: Make the folder of a zoo if there is none. Otherwise that is an error: a typo is no empty zoo.
        user: Whose models a bare name means first, in a zoo of this process. Default: who uses this machine.
        settings: Fields of `Settings`; of one behind HTTP those of the client alone: `timeout` and the like.

    Raises:
        InvalidSetting: See `target`.
        ZooUnusable: The zoo cannot be opened, or is not there and shall not be made.
    """
    return target(uri, token=token, **settings).open(make=make, user=user)


def open_local(home: str | None = None, *, make: bool = True, **settings: Any) -> "LocalCoordinator":
    """Open a zoo in this process. Default: the variable MODELKEEPER_HOME, or ~/.modelkeeper."""
    return _local(Settings.read(home=home, **settings), make)


def open_remote(url: str, *, token: str = "", **settings: Any) -> "RemoteCoordinator":
    """Call the coordinator at a URL. Nothing is sent yet."""
    return _remote(url, token or os.environ.get(TOKEN, ""), Settings.read(**settings))


def _local(settings: Settings, make: bool, user: str = "") -> "LocalCoordinator":
    from modelkeeper.coordinator.local import LocalCoordinator

    in_folder = not settings.in_memory and not settings.catalog
    if in_folder:
        _check_name(settings.folder)
    if in_folder and not make and not is_zoo(settings.folder):
        where = f"--zoo or {URI}, or of a command that takes --home by that or MODELKEEPER_HOME"
        advice = f"Register a model to make one, or say where it is by {where}."
        raise ZooUnusable(str(settings.folder), "there is no zoo", advice)
    return LocalCoordinator(settings, user)


def _check_name(folder: Path) -> None:
    """Raise ZooUnusable if the name of a folder is no text here, which SQLite needs."""
    name = str(folder)
    try:
        os.fsencode(name)
        name.encode()
    except UnicodeEncodeError as problem:
        advice = "Use a locale of UTF-8 (LANG=C.UTF-8), or rename the folder."
        raise ZooUnusable(
            ascii(name)[1:-1], "its name has letters that cannot be read here", advice
        ) from problem


def is_zoo(folder: Path) -> bool:
    """Is there a zoo in a folder?

    Raises:
        ZooUnusable: Nobody knows: a folder on the way may not be entered.
    """
    try:
        os.stat(folder / "catalog.db")
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as problem:
        advice = "Ask its owner to let you in, or choose another folder."
        raise ZooUnusable(str(folder), problem.strerror or str(problem), advice) from problem
    return True


def _remote(url: str, token: str, settings: Settings) -> "RemoteCoordinator":
    from modelkeeper.coordinator.remote import RemoteCoordinator
    from modelkeeper.zoo.restriction import Restriction

    return RemoteCoordinator(
        url,
        token=token,
        timeout=settings.timeout,
        spool=settings.spool or None,
        deadline=settings.deadline,
        allowed=Restriction.of(settings),
        direct=settings.direct != OFF,
    )
