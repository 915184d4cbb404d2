"""A server that this program sends requests to: its address, its authorities, and our credentials.

Certificates, keys and tokens are bytes or files. The server checks files before each request (a few stats), and reads
them again when they have changed. If one becomes unusable, the former credentials stay.

The client of `kubectl chronicle` uses this module, too. So it imports little: a command should start at once.
"""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import SplitResult, urlsplit

Pem = bytes | Path | None
"""PEM itself, the file that holds it, or nothing."""


class Issued(NamedTuple):
    """Credentials of a program: a token, or a certificate and its key (PEM), or all three.

    ``serial``: the number of the run. ``expires``: in seconds since 1970.
    """

    serial: int = 0
    token: str = ""
    certificate: bytes | None = None
    key: bytes | None = None
    expires: float | None = None

    def __repr__(self) -> str:
        return f"<Issued {self.serial}>"


class CredentialProgram(Protocol):
    """A program that issues credentials (credential_plugins.py)."""

    def stamp(self) -> tuple[object, ...]:
        """Return a value that differs once other credentials should be asked for."""
        ...

    def refused(self, serial: int) -> None:
        """Note that the server has answered 401 to credentials."""
        ...

    def credentials(self) -> Issued:
        """Return valid credentials. Blocks. ValueError: it issues none."""
        ...


class RemoteServer:
    """One server. Its text has no secrets. Raises ValueError for fields that exclude each other; the files are checked
    by ``load_credentials``. It never changes.

    ``ca``: its authorities, None for those of the system
    ``certificate``, ``key``: our client certificate, both or neither
    ``token``, ``token_file``: our bearer token; the file has precedence
    ``server_name``: the name in its certificate, if it is not the host of ``url``
    ``insecure``: do not verify its certificate
    ``proxy_url``: an http or https proxy
    ``http_allowed``: allow a ``url`` without TLS
    ``plugin``: the program that issues our credentials, in place of all others
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
        http_allowed: bool = False,
        plugin: CredentialProgram | None = None,
    ) -> None:
        self.url, self.ca, self.certificate, self.key = url, ca, certificate, key
        self.token, self.token_file, self.username, self.password = token, token_file, username, password
        self.server_name, self.insecure, self.proxy_url = server_name, insecure, proxy_url
        self.http_allowed, self.plugin = http_allowed, plugin
        self._check()

    def replaced(self, **changes: Any) -> RemoteServer:
        """Return a server with other values. Raises ValueError."""
        return RemoteServer(**{**vars(self), **changes})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteServer) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        return f"<RemoteServer {urlsplit(self.url).hostname}>"

    def as_cluster(self) -> dict[str, Any]:
        """Return the server as a kubeconfig has it (ExecCredential's ``spec.cluster``). ValueError: its authorities
        cannot be read."""
        ca = b"" if self.ca is None else _pem(self.ca, "certificate authorities")
        values: dict[str, Any] = {
            "server": self.url,
            "tls-server-name": self.server_name,
            "insecure-skip-tls-verify": self.insecure,
            "certificate-authority-data": base64.b64encode(ca).decode(),
            "proxy-url": self.proxy_url,
        }
        return {name: value for name, value in values.items() if value}

    def _check(self) -> None:
        scheme = _parsed(self.url, "the server's URL", {"https", "http"}).scheme
        if scheme == "http" and not self.http_allowed:
            raise ValueError(f"the server's URL must begin with https://, got {self.url}")
        if self.proxy_url:
            _parsed(self.proxy_url, "the proxy's URL", {"http", "https"}, shown=False)
        if (self.certificate is None) != (self.key is None):
            raise ValueError("a client certificate needs its key, and a key its certificate")
        if (self.token or self.token_file) and (self.username or self.password):
            raise ValueError("username/password or bearer token may be set, but not both")
        if self.plugin is not None and (self.token or self.token_file or self.username or self.certificate):
            raise ValueError("exec and other credentials may not both be set")
        if self.insecure and self.ca is not None:
            raise ValueError("a certificate authority and not verifying the server's certificate exclude each other")

    def version(self) -> tuple[object, ...]:
        """Return a value that differs once a file has changed, or credentials have expired."""
        if self.plugin is not None:
            return (*self.plugin.stamp(), _stamp(self.ca) if isinstance(self.ca, Path) else None)
        files = (self.ca, self.certificate, self.key, self.token_file)
        return tuple(_stamp(file) for file in files if isinstance(file, Path))


def _parsed(url: str, label: str, schemes: set[str], *, shown: bool = True) -> SplitResult:
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        parts, usable = urlsplit(""), False
    if not usable or parts.scheme not in schemes:
        kinds = " or ".join(f"{scheme}://" for scheme in sorted(schemes, reverse=True))
        raise ValueError(f"{label} must begin with {kinds} and name a host" + (f", got {url!r}" if shown else ""))
    return parts


def _stamp(file: Path) -> tuple[int, int, int]:
    try:
        status = os.stat(file)
    except OSError:
        return (0, 0, 0)
    return (status.st_mtime_ns, status.st_size, status.st_ino)


class Credentials(NamedTuple):
    """The loaded files of a server.

    ``authorization``: the header field, "" for none.
    ``serial``: of credentials that a program has issued.
    """

    context: ssl.SSLContext
    proxy_context: ssl.SSLContext | None
    authorization: str
    serial: int = 0

    def __repr__(self) -> str:
        return "<Credentials>"


def load_credentials(peer: RemoteServer) -> Credentials:
    """Read the files, and run the program that issues credentials. Blocks. Raises ValueError, in one line."""
    if peer.plugin is not None:
        issued = peer.plugin.credentials()
        given = peer.replaced(plugin=None, token=issued.token, certificate=issued.certificate, key=issued.key)
        return load_credentials(given)._replace(serial=issued.serial)
    proxy_context = _context(peer) if peer.proxy_url.startswith("https:") else None
    return Credentials(_context(peer), proxy_context, _authorization(peer))


def _authorization(peer: RemoteServer) -> str:
    if peer.token_file is not None:
        try:
            token = peer.token_file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"cannot read the token in {peer.token_file}: {_why(error)}") from None
        if not token:
            raise ValueError(f"{peer.token_file} holds no token")
    else:
        token = peer.token
    if token:
        if not token.isascii() or not token.isprintable() or " " in token:
            raise ValueError("the bearer token has characters that no token has")
        return f"Bearer {token}"
    if peer.username or peer.password:
        return "Basic " + base64.b64encode(f"{peer.username}:{peer.password}".encode()).decode()
    return ""


def _context(peer: RemoteServer) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False
    if peer.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif peer.ca is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        pem = _pem(peer.ca, "certificate authorities")
        # As Go has it: any certificate of the file is trusted, also one that another authority signed, or the server's.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(cadata=pem.decode("ascii", "replace"))
        except (ssl.SSLError, ValueError) as error:
            raise ValueError(f"{_shown(peer.ca)} holds no certificate authorities (PEM): {_why(error)}") from None
    if peer.certificate is not None and peer.key is not None:
        _load_pair(context, peer.certificate, peer.key)
    return context


def _load_pair(context: ssl.SSLContext, certificate: bytes | Path, key: bytes | Path) -> None:
    with _file_of(_pem(certificate, "client certificate") + b"\n" + _pem(key, "client key")) as file:
        try:
            context.load_cert_chain(file, password=_no_password)
        except (ssl.SSLError, ValueError, OSError) as error:
            both = f"{_shown(certificate)} and {_shown(key)}"
            raise ValueError(f"{both} are no client certificate (PEM) and its key: {_why(error)}") from None


@contextmanager
def _file_of(content: bytes) -> Iterator[str]:
    """Provide the name of a file with this content: OpenSSL reads certificates only from files.

    On Linux it is in memory. Elsewhere only its owner can read it, and it is removed at once.
    """
    if not hasattr(os, "memfd_create"):
        from tempfile import NamedTemporaryFile

        with NamedTemporaryFile(prefix="kubechronicle-") as file:
            file.write(content)
            file.flush()
            yield file.name
        return
    with open(os.memfd_create("kubechronicle"), "wb") as memory:
        memory.write(content)
        memory.flush()
        yield f"/proc/self/fd/{memory.fileno()}"


def _no_password() -> str:
    raise ValueError("the key is encrypted")  # otherwise OpenSSL would ask at the terminal


def _pem(source: bytes | Path, label: str) -> bytes:
    if isinstance(source, bytes):
        return source
    try:
        return source.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read the {label} in {source}: {_why(error)}") from None


def _shown(source: bytes | Path) -> str:
    return str(source) if isinstance(source, Path) else "the data"


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return str(error.reason or error)
    return str(getattr(error, "strerror", None) or error)
