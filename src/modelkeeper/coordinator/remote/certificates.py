"""Whose certificates does a client trust? Read once in a process; httpx would read them for each client."""

import os
import ssl
from functools import cache

import httpx


def trusted() -> ssl.SSLContext:
    """What httpx trusts by default: those of certifi, or what SSL_CERT_FILE or SSL_CERT_DIR name."""
    return _read(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@cache
def _read(file: str | None, folder: str | None) -> ssl.SSLContext:
    return httpx.create_ssl_context()  # which looks at the two variables, too
