"""Files of others that are kept or fetched: which version, from where, and are they what was looked at?

    python -m tests.helpers.vendored        fetch what is kept in the repository anew (`make vendor`)
    chromium()                              a browser, fetched once into build/

Packages come from the npm registry by name and version, and are refused unless their SHA-512 is known here.
"""

import base64
import fcntl
import hashlib
import io
import os
import platform
import sys
import tarfile
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
REGISTRY = "https://registry.npmjs.org"
VENDOR = "tests/vendor"
SHOWN = "src/modelkeeper/server/ui/static/vendor"  # what pages need, and so belongs to the package
IN_DOCS = (
    "docs/vendor"  # what the documentation needs, so that it can be searched when it is read from a disk
)


@dataclass(frozen=True)
class Package:
    """A package of npm, and what of it is kept: its files, where each lies here, and their SHA-256."""

    name: str
    version: str
    sha512: str  # in base64, as the registry has it
    kept: dict[str, tuple[str, str]] = field(default_factory=dict)

    def fetch(self) -> tarfile.TarFile:
        """The package, compared with its checksum."""
        file = f"{self.name.rpartition('/')[2]}-{self.version}.tgz"
        with urllib.request.urlopen(f"{REGISTRY}/{self.name}/-/{file}", timeout=300) as reply:
            data: bytes = reply.read()
        found = base64.b64encode(hashlib.sha512(data).digest()).decode()
        if found != self.sha512:
            raise ValueError(f"{self.name} {self.version} has the SHA-512 {found}, not {self.sha512}")
        return tarfile.open(fileobj=io.BytesIO(data))


AXE = Package(
    "axe-core",
    "4.14.0",
    "9WTZxEjsZ7b13TH8JPmbV2z8CHbl80/2hm3XPEG4JgNdQLK81IBRXmSxHfMAOkSqQeRxT/0dwNDz2GOm3zzpcQ==",
    {
        "axe.min.js": (
            f"{VENDOR}/axe.min.js",
            "20c09fe157a8a34a30e241aaa1fcdade657734f08ab379ecfbeb7d45cc46e878",
        ),
        "LICENSE": (
            f"{VENDOR}/axe.LICENSE.txt",
            "af175b9d96ee93c21a036152e1b905b0b95304d4ae8c2c921c7609100ba8df7e",
        ),
    },
)
UPLOT = Package(
    "uplot",
    "1.6.32",
    "KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==",
    {
        "dist/uPlot.esm.js": (
            f"{SHOWN}/uPlot.esm.js",
            "5dd9b3281aa64b461b42d9945f6adb2649d346502b12281a9ae0d46599a80eba",
        ),
        "dist/uPlot.min.css": (
            f"{SHOWN}/uPlot.min.css",
            "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
        ),
        "LICENSE": (
            f"{SHOWN}/uPlot.LICENSE.txt",
            "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
        ),
    },
)
IFRAME_WORKER = Package(
    "iframe-worker",
    "1.0.4",
    "roeaaI+Lg1LJNfgpCjoRe/+WzEjy9+Z08LoEvu85MCPbBjwm+qXz8Ag5U05lHa6V1CysZyGzE0SOkAtSUA5q7Q==",
    {
        "shim/index.js": (
            f"{IN_DOCS}/iframe-worker.js",
            "e8e412dbcfea9b7e31b5ffa288d7b6035915e714c542f4176a0cdbe262fc9609",
        ),
        "LICENSE": (
            f"{IN_DOCS}/iframe-worker.LICENSE.txt",
            "dd69737a4768aab9f934a5aed9efab9561ac4062d4fdbe490d44369a2cf48b6b",
        ),
    },
)
KEPT = (AXE, UPLOT, IFRAME_WORKER)
CHROMIUM = Package(
    "@sparticuz/chromium",
    "153.0.0",
    "jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA==",
)
FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>
<dir>{folder}/fonts</dir><dir>/usr/share/fonts</dir><cachedir>{folder}/cache</cachedir></fontconfig>
"""


def chromium() -> tuple[Path, dict[str, str]]:
    """A browser, with the variables that it needs; unpacked once, also when several processes ask.

    Raises:
        OSError: It cannot be had here.
        ValueError: It is not what it should be.
    """
    import brotli

    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise OSError("there is a pinned browser for Linux on x86_64 alone")
    folder = ROOT / "build" / f"chromium-{CHROMIUM.version}"
    program = folder / "chromium"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            with CHROMIUM.fetch() as package:
                parts = {}
                for name in ("chromium.br", "fonts.tar.br", "al2023.tar.br"):
                    file = package.extractfile(f"package/bin/{name}")
                    assert file is not None
                    parts[name] = brotli.decompress(file.read())
            for name in ("fonts.tar.br", "al2023.tar.br"):
                with tarfile.open(fileobj=io.BytesIO(parts[name])) as inner:
                    inner.extractall(folder, filter="data")
            (folder / "fonts.conf").write_text(FONTS.format(folder=folder))
            fresh = folder / "fresh"
            fresh.write_bytes(parts["chromium.br"])
            fresh.chmod(0o755)
            fresh.rename(program)
    libraries = f"{folder / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")
    return program, {"LD_LIBRARY_PATH": libraries, "FONTCONFIG_FILE": str(folder / "fonts.conf")}


def main() -> None:
    """Fetch what is kept in the repository."""
    for wanted in KEPT:
        with wanted.fetch() as package:
            for inside, (here, _) in wanted.kept.items():
                file = package.extractfile(f"package/{inside}")
                assert file is not None
                (ROOT / here).parent.mkdir(exist_ok=True)
                (ROOT / here).write_bytes(file.read())
                print(here, hashlib.sha256((ROOT / here).read_bytes()).hexdigest())


if __name__ == "__main__":
    main()
