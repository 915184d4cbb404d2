"""Credentials in the form the standard library takes: a TLS context and the value of the Authorization header."""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kubechronicle.ops.client.server import Server


class Credentials:
    """``authorization``: the header's value, "" for none."""

    def __init__(self, context: ssl.SSLContext, authorization: str) -> None:
        self.context, self.authorization = context, authorization


def load_credentials(server: Server) -> Credentials:
    """Read the files. Raises ValueError, in one line, if one can't be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False
    if server.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif server.ca is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        authorities = _read(server.ca, "certificate authorities").decode("ascii", "replace")
        try:
            context.load_verify_locations(cadata=authorities)
        except (ssl.SSLError, ValueError) as error:
            raise ValueError(f"{_name(server.ca)} holds no certificate authorities (PEM): {_reason(error)}") from None
    if server.certificate is not None and server.key is not None:
        _load_client_certificate(context, server.certificate, server.key)
    return Credentials(context, _authorization(server))


def _load_client_certificate(context: ssl.SSLContext, certificate: bytes | Path, key: bytes | Path) -> None:
    with _file_of(_read(certificate, "client certificate") + b"\n" + _read(key, "client key")) as file:
        try:
            context.load_cert_chain(file, password=_reject_encrypted_key)
        except (ssl.SSLError, ValueError, OSError) as error:
            pair = f"{_name(certificate)} and {_name(key)}"
            raise ValueError(f"{pair} are no client certificate (PEM) and its key: {_reason(error)}") from None


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


def _reject_encrypted_key() -> str:
    raise ValueError("the key is encrypted")  # otherwise OpenSSL would ask for a password at the terminal


def _authorization(server: Server) -> str:
    token = server.token
    if server.token_file is not None:
        token = _read(server.token_file, "token").decode("utf-8", "replace").strip()
        if not token:
            raise ValueError(f"{server.token_file} holds no token")
    if token:
        if not token.isascii() or not token.isprintable() or " " in token:
            raise ValueError("the bearer token has characters that no token has")
        return f"Bearer {token}"
    if server.username or server.password:
        return "Basic " + base64.b64encode(f"{server.username}:{server.password}".encode()).decode()
    return ""


def _read(source: bytes | Path, label: str) -> bytes:
    if isinstance(source, bytes):
        return source
    try:
        return source.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read the {label} in {source}: {_reason(error)}") from None


def _name(source: bytes | Path) -> str:
    return str(source) if isinstance(source, Path) else "the data"


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)
