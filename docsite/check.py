"""Does a page of the finished site lead nowhere, or have a browser ask another host?

    python -m docsite.check build/site        names what is wrong, and fails

Links and anchors are followed as they stand in the HTML, whatever made them. Addresses of other hosts are
only looked at: a link must be https with a host, and no page may load anything from there.
"""

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

HERE = "https://site.invalid/"
LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "object": "data"}
LOADED_LINKS = ("stylesheet", "icon", "preload", "preconnect", "dns-prefetch", "modulepreload")


class Seen(HTMLParser):
    """The anchors of a page, where its links lead, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag == "link" and set(values.get("rel", "").split()) & set(LOADED_LINKS):
            self.loads.append(values.get("href", ""))
        if tag in LOADS and LOADS[tag] in values:
            self.loads.append(values[LOADS[tag]])


def problems(site: Path) -> Iterator[str]:
    """What is wrong with a site, a line for each."""
    pages = {
        page.relative_to(site).as_posix(): Seen(page.read_text()) for page in sorted(site.rglob("*.html"))
    }
    for name, seen in pages.items():
        if name == "404.html":
            continue  # served for any address, so its own are those of the root
        for address in seen.loads:
            if urlsplit(address).scheme in ("http", "https") or address.startswith("//"):
                yield f"{name} loads {address} from another host"
            elif not address.startswith("data:") and not _there(site, name, address):
                yield f"{name} loads {address}, which is not there"
        for address in seen.links:
            parts = urlsplit(address)
            if parts.scheme in ("http", "https"):
                if not (
                    (parts.scheme == "https" and "." in parts.netloc)
                    or parts.hostname in ("localhost", "127.0.0.1")
                ):
                    yield f"{name} links to {address}: not https, or no host"
            elif parts.scheme not in ("", "mailto"):
                yield f"{name} links to {address}"
            elif not parts.scheme:
                target = _target(name, address)
                if not _there(site, name, address):
                    yield f"{name} links to {address}, which is not there"
                elif (
                    parts.fragment
                    and target in pages
                    and unquote(parts.fragment) not in pages[target].anchors
                ):
                    yield f"{name} links to {address}, but there is no such anchor"


def _target(page: str, address: str) -> str:
    path = unquote(urlsplit(urljoin(HERE + page, address)).path).lstrip("/")
    return f"{path}index.html" if not path or path.endswith("/") else path


def _there(site: Path, page: str, address: str) -> bool:
    return (site / _target(page, address)).is_file()


if __name__ == "__main__":
    found = list(problems(Path(sys.argv[1])))
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))
