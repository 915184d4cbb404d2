"""A server, and how a user connects to it: the parts of a kubeconfig that TLS and the Authorization header need."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

Pem = bytes | Path | None
"""PEM itself, the file that contains it, or nothing."""


class Server:
    """One server. Its text has no secrets. Raises ValueError for fields that exclude each other.

    ``ca``: the server's certificate authorities, None for those of the system
    ``certificate``, ``key``: the client certificate, both or neither
    ``token``, ``token_file``: the bearer token; the file has precedence
    ``server_name``: the name in the server's certificate, if it is not the host of ``url``
    ``insecure``: do not verify the server's certificate
    """

    def __init__(
        self,
        *,
        url: str,
        ca: Pem = None,
        certificate: Pem = None,
        key: Pem = None,
        token: str = "",
        token_file: Path | None = None,
        username: str = "",
        password: str = "",
        server_name: str = "",
        insecure: bool = False,
        proxy_url: str = "",
    ) -> None:
        self.url, self.ca, self.certificate, self.key = url, ca, certificate, key
        self.token, self.token_file, self.username, self.password = token, token_file, username, password
        self.server_name, self.insecure, self.proxy_url = server_name, insecure, proxy_url
        self._check()

    def replaced(self, **changes: Any) -> Server:
        """Return a server with other values. Raises ValueError."""
        return Server(**{**vars(self), **changes})

    def _check(self) -> None:
        if not _is_http_url(self.url):
            raise ValueError(f"the server's URL must begin with https:// or http:// and name a host, got {self.url!r}")
        if self.proxy_url and not _is_http_url(self.proxy_url):
            raise ValueError("the proxy's URL must begin with https:// or http:// and name a host")
        if (self.certificate is None) != (self.key is None):
            raise ValueError("a client certificate needs its key, and a key its certificate")
        if (self.token or self.token_file) and (self.username or self.password):
            raise ValueError("username/password or bearer token may be set, but not both")
        if self.insecure and self.ca is not None:
            raise ValueError("a certificate authority and not verifying the server's certificate exclude each other")


def _is_http_url(url: str) -> bool:
    with suppress(ValueError):  # a port that is no number
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    return False
