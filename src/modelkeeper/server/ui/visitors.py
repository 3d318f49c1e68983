"""Who looks at the pages, and does what is sent to them come from them? Sessions in cookies, and origins.

A session is known by a cookie that scripts cannot read and that other sites cannot make a browser send. It
counts for pages alone: whoever calls /v1 sends a token. What changes something must come from a page of this
service, as the browser says itself (Sec-Fetch-Site, Origin), also where nobody logs in.
"""

from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import urlsplit

import anyio.to_thread
from anyio import CapacityLimiter

from modelkeeper.errors import NotAllowed
from modelkeeper.server.limits import Rates
from modelkeeper.zoo.accounts.accounts import Accounts
from modelkeeper.zoo.accounts.holders import Holder
from modelkeeper.zoo.accounts.sessions import LONGEST

ROOM = "/ui"
PLAIN, SECURE = "modelkeeper", "__Host-modelkeeper"  # names of the cookie, without TLS and with it
RATE = 25.0  # requests for pages per second and user, beside what they may ask of /v1
LOGINS = 2.0  # attempts per second and address
THREADS = 4
_SAFE = frozenset({"GET", "HEAD"})
Headers = Mapping[str, str]


def is_page(scope: Mapping[str, Any], headers: Headers) -> bool:
    """Is this a request for a page, or for what pages need? A browser at / is, too."""
    path = scope["path"]
    asked = path == "/" and scope["method"] in _SAFE and "text/html" in headers.get("accept", "")
    return asked or path == ROOM or path.startswith(f"{ROOM}/")


def under_tls(scope: Mapping[str, Any], headers: Headers) -> bool:
    """Did the request travel encrypted to whoever took it? A proxy in front says so, or the browser does."""
    told = scope.get("scheme"), headers.get("x-forwarded-proto"), urlsplit(headers.get("origin", "")).scheme
    return "https" in told


def secret_of(scope: Mapping[str, Any], headers: Headers) -> str:
    """The secret of the session that a request belongs to, which may be no valid one; "": there is none."""
    try:
        cookies = SimpleCookie(headers.get("cookie", "")[:8192])
    except CookieError:
        return ""
    names = (SECURE,) if under_tls(scope, headers) else (SECURE, PLAIN)
    return next((cookies[name].value for name in names if name in cookies), "")


def cookie(secret: str, tls: bool) -> str:
    """The header that makes a browser keep a session; "": that makes it forget one."""
    name, where = (SECURE, "Path=/; Secure") if tls else (PLAIN, f"Path={ROOM}")
    lasts = int(LONGEST) if secret else 0
    return f"{name}={secret}; {where}; HttpOnly; SameSite=Strict; Max-Age={lasts}"


def expect_own_page(method: str, headers: Headers) -> None:
    """What changes something comes from a page of this service.

    Raises:
        NotAllowed: The browser says otherwise, or says nothing.
    """
    if method in _SAFE:
        return
    site, origin, host = (headers.get(name, "") for name in ("sec-fetch-site", "origin", "host"))
    if site:
        own = site == "same-origin" and (not origin or _name(urlsplit(origin).netloc) == _name(host))
    else:  # older browsers, and addresses without TLS that are not this machine
        own = bool(origin) and urlsplit(origin).netloc.lower() == host.lower()
    if not own:
        problem = f"this was not sent by a page of this service ({(site or origin or 'no origin')[:80]})"
        raise NotAllowed(problem, "Open the page here and try again; programs use /v1.")


def _name(address: str) -> str:
    """An address without its port: a proxy may have left that out."""
    return (urlsplit(f"//{address}").hostname or "").lower()


class Visitors:
    """Those who look at the pages of one service."""

    def __init__(self, accounts: Accounts, *, auth: bool) -> None:
        self._sessions, self._auth = accounts.sessions, auth
        self._rates = Rates()
        self._asking = CapacityLimiter(THREADS)

    async def admit(self, scope: Mapping[str, Any], headers: Headers) -> Holder | None:
        """Who asks for a page; None: nobody is logged in.

        Raises:
            NotAllowed: It would change something, and comes from elsewhere.
            TooManyRequests: They ask too often.
        """
        expect_own_page(scope["method"], headers)
        secret = secret_of(scope, headers) if self._auth else ""
        holder = None
        if secret:
            holder = await anyio.to_thread.run_sync(self._sessions.holder, secret, limiter=self._asking)
        if holder is not None:
            self._rates.take(f"user {holder.user.name}", RATE)
        else:
            address = (scope.get("client") or ("",))[0]
            login = scope["method"] not in _SAFE and self._auth
            self._rates.take(f"{'login' if login else 'from'} {address}", LOGINS if login else RATE)
        return holder
