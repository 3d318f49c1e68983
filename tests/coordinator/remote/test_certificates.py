"""Certificates are read once, those that httpx trusts or that a variable names; others are not trusted."""

import ssl
from pathlib import Path
from typing import Any

import certifi
import httpx
import pytest

from modelkeeper.coordinator.remote.calls import Calls
from modelkeeper.coordinator.remote.certificates import trusted


def test_all_connections_of_a_process_share_them(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    class Client(httpx.Client):
        def __init__(self, *, verify: ssl.SSLContext, **arguments: Any) -> None:
            given.append(verify)
            super().__init__(verify=verify, **arguments)

    monkeypatch.setattr(httpx, "Client", Client)
    for _ in range(2):
        calls = Calls("https://keeper.example", "", 1.0)
        assert calls.client is calls.client
        calls.close()
    assert given == [trusted(), trusted()]
    assert trusted() is trusted()
    assert trusted().verify_mode == ssl.CERT_REQUIRED
    assert trusted().check_hostname
    assert trusted().get_ca_certs()


def test_a_variable_names_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Path(certifi.where()).read_text().partition("-----END CERTIFICATE-----")
    (tmp_path / "one.pem").write_text(first[0] + first[1] + "\n")
    assert len(trusted().get_ca_certs()) > 1
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "one.pem"))
    assert len(trusted().get_ca_certs()) == 1
