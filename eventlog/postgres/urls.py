"""Database URLs: the parameters of libpq in a URL, with the meaning that libpq gives them, or refused by name.

asyncpg knows some of them, and sends all others to Postgres as settings. So each parameter of libpq 18 is in exactly
one of the tables here, and an unknown one is refused as by libpq. No I/O but looking at the files that a URL names.
"""

from __future__ import annotations

import configparser
import os
import random
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from kubechronicle.eventlog.errors import SetupError

SHAPE: Final = "postgresql://user:password@host:5432/database"
QUOTING: Final = "in a user's name and password, @ : / ? # [ ] and % are written %40, %3A, …"

OF_ASYNCPG: Final = frozenset(
    {
        "host", "port", "dbname", "database", "user", "password", "passfile", "sslmode", "sslcert", "sslkey",
        "sslpassword", "sslrootcert", "sslcrl", "ssl_min_protocol_version", "ssl_max_protocol_version",
        "sslnegotiation", "target_session_attrs", "krbsrvname", "gsslib", "service", "options",
    }
)  # fmt: skip
"""Parameters that asyncpg treats as libpq does (``options`` is one of the protocol)."""

OURS: Final = frozenset(
    {
        "connect_timeout", "hostaddr", "load_balance_hosts", "keepalives", "keepalives_idle",
        "keepalives_interval", "keepalives_count", "tcp_user_timeout", "servicefile", "fallback_application_name",
        "ssl",
    }
)  # fmt: skip
"""Parameters with an effect here. ``fallback_application_name``: none, because the server has a name."""

HARMLESS: Final[Mapping[str, frozenset[str]]] = {
    "channel_binding": frozenset({"disable", "prefer"}),
    "gssencmode": frozenset({"disable", "prefer"}),
    "gssdelegation": frozenset({"0"}),
    "sslcompression": frozenset({"0", "1"}),  # libpq ignores it since version 14
    "sslsni": frozenset({"1"}),
    "sslcertmode": frozenset({"allow"}),
    "replication": frozenset({"false", "off", "no", "0"}),
    "client_encoding": frozenset({"utf8", "utf-8", "UTF8", "UTF-8", "auto"}),
    "min_protocol_version": frozenset({"3.0"}),
    "max_protocol_version": frozenset({"3.0", "3.2", "latest"}),
    "require_auth": frozenset[str](),
}
"""The values whose meaning holds here in any case; all other values are refused."""

REFUSED: Final[Mapping[str, str]] = {
    "application_name": "the server names its connections itself, kubechronicle INSTANCE",
    "requirepeer": "the owner of a socket is not compared; use sslmode=verify-full over TCP",
    "sslcrldir": "give one file with all lists as sslcrl",
    "sslkeylogfile": "keys of sessions are not written",
    "scram_client_key": "give the password",
    "scram_server_key": "give the password",
    "oauth_issuer": "OAuth is not supported",
    "oauth_client_id": "OAuth is not supported",
    "oauth_client_secret": "OAuth is not supported",
    "oauth_scope": "OAuth is not supported",
}
"""Parameters of libpq that are not supported, and why."""

VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    "load_balance_hosts": ("disable", "random"),
    "sslmode": ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "sslnegotiation": ("postgres", "direct"),
    "target_session_attrs": ("any", "read-write", "read-only", "primary", "standby", "prefer-standby"),
    "gsslib": ("gssapi", "sspi"),
}

KNOWN: Final = OF_ASYNCPG | OURS | HARMLESS.keys() | REFUSED.keys()

_KEEPALIVES: Final = {
    "keepalives_idle": (socket.IPPROTO_TCP, "TCP_KEEPIDLE"),
    "keepalives_interval": (socket.IPPROTO_TCP, "TCP_KEEPINTVL"),
    "keepalives_count": (socket.IPPROTO_TCP, "TCP_KEEPCNT"),
    "tcp_user_timeout": (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT"),  # milliseconds, as in libpq
}
_CHECKED_MODES: Final = frozenset({"require", "verify-ca", "verify-full"})


@dataclass(frozen=True, slots=True)
class UrlTarget:
    """A database URL for asyncpg.

    ``url``: without the parameters that asyncpg does not know. ``arguments``: more arguments of asyncpg.connect.
    ``addresses``: by host, if hostaddr is given. ``options``: of the client's socket. ``timeout``: seconds to connect,
    None: as usual. ``hosts``: number of hosts.
    """

    url: str
    arguments: dict[str, Any] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    options: tuple[tuple[int, str, int], ...] = ()
    timeout: float | None = None
    hosts: int = 1


def wrong(why: str) -> SetupError:
    return SetupError(f"the database URL is wrong: {why}; it should look like {SHAPE}")


def parse(url: str) -> UrlTarget:
    """Return how to connect. SetupError: a parameter is unknown, not supported, or has a wrong value."""
    try:
        parts = urlsplit(url)
        parameters = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:  # its text may be a part of the password
        raise wrong(QUOTING) from None
    for name, value in parameters.items():
        _check(name, value)
    if parameters.pop("ssl", "") == "true":  # as JDBC's, which libpq accepts
        parameters.setdefault("sslmode", "require")
    service = _service(parameters)
    _check_files({**service, **parameters})
    own = {name: parameters.pop(name) for name in [*parameters] if name in OURS}
    for name in HARMLESS:
        parameters.pop(name, None)
    arguments: dict[str, Any] = {}
    if file := own.get("servicefile"):
        arguments["servicefile"] = file
    hosts, ports = _hosts(parts.netloc, parameters)
    addresses = _addresses(own.get("hostaddr", ""), hosts)
    if own.get("hostaddr") and not hosts:
        hosts = own["hostaddr"].split(",")
        ports = (parameters.pop("port", "").split(",") if parameters.get("port") else []) or [""]
    if own.get("hostaddr") or (own.get("load_balance_hosts") == "random" and len(hosts) > 1):
        ports = ports * len(hosts) if len(ports) == 1 else ports
        pairs = list(zip(hosts, ports, strict=False))
        if own.get("load_balance_hosts") == "random":
            random.SystemRandom().shuffle(pairs)
        arguments["host"] = [host for host, _ in pairs]
        arguments["port"] = [int(port or 5432) for _, port in pairs]
        parameters.pop("host", None)
        parameters.pop("port", None)
    cleaned = parts._replace(query=urlencode(parameters, quote_via=quote)).geturl()
    if not parts.netloc:  # urlunsplit leaves out the slashes of an empty host
        cleaned = cleaned.replace(f"{parts.scheme}:", f"{parts.scheme}://", 1) if "://" not in cleaned else cleaned
    return UrlTarget(
        url=cleaned,
        arguments=arguments,
        addresses=addresses,
        options=_socket_options(own),
        timeout=_timeout(own.get("connect_timeout", "")),
        hosts=max(1, len(hosts)),
    )


def _check(name: str, value: str) -> None:
    if name not in KNOWN:
        near = get_close_matches(name, KNOWN, 1)
        raise wrong(f"there is no parameter {name!r}" + (f", did you mean {near[0]!r}?" if near else ""))
    if name in REFUSED:
        raise wrong(f"{name} is not supported: {REFUSED[name]}")
    if name in HARMLESS and value and value not in HARMLESS[name]:
        allowed = ", ".join(sorted(HARMLESS[name])) or "no value"
        raise wrong(f"{name}={value} is not supported, only {allowed}")
    numbers = ("connect_timeout", "keepalives", "sslsni", *_KEEPALIVES)
    if name in numbers and value and not value.strip().removeprefix("-").isdecimal():
        raise wrong(f"{name} must be a number")
    if name in VALUES and value not in VALUES[name]:
        raise wrong(f"{name} must be {', '.join(VALUES[name][:-1])} or {VALUES[name][-1]}")
    if name == "ssl" and value != "true":
        raise wrong("ssl must be true; see sslmode")
    if name == "sslrootcert" and value == "system":
        raise wrong("sslrootcert=system is not supported: name a file, such as /etc/ssl/certs/ca-certificates.crt")
    if name == "options" and "\0" in value:
        raise wrong("options has a character that is not allowed")


def _service(parameters: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters of the service that the URL names. SetupError: there is none, or it has a wrong one."""
    service = parameters.get("service", "")
    if not service:
        return {}
    named = parameters.get("servicefile") or os.environ.get("PGSERVICEFILE") or "~/.pg_service.conf"
    sections = configparser.ConfigParser(interpolation=None)
    try:
        read = sections.read(Path(named).expanduser())
    except (configparser.Error, UnicodeDecodeError, OSError):
        raise wrong(f"the service file {named} cannot be read") from None
    if not read or not sections.has_section(service):
        raise wrong(f"the service {service!r} is not in {named}")
    found = dict(sections[service])
    for name, value in found.items():
        if name not in OF_ASYNCPG:
            raise wrong(f"the service {service!r} has {name}, which only the URL may have")
        _check(name, value)
    return found


def _check_files(parameters: Mapping[str, str]) -> None:
    """SetupError: a file of certificates or keys cannot be used."""
    if parameters.get("sslmode", "prefer") not in ("prefer", *_CHECKED_MODES):
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if parameters.get("sslmode") in _CHECKED_MODES:
        for name in ("sslrootcert", "sslcrl"):
            if path := parameters.get(name):
                _load(name, path, partial(context.load_verify_locations, cafile=path))
    if path := parameters.get("sslcert"):
        key, password = parameters.get("sslkey") or None, parameters.get("sslpassword", "")
        for name, file in (("sslcert", path), ("sslkey", key)):
            if file is not None:
                _load(name, file, Path(file).read_bytes)
        name = "sslcert" if key is None else "sslcert and sslkey"
        _load(name, path, lambda: context.load_cert_chain(path, keyfile=key, password=lambda: password))


def _load(name: str, path: str, load: Callable[[], object]) -> None:
    try:
        load()
    except ssl.SSLError as error:
        raise wrong(f"{name}: {path}: {error.reason or error}") from None
    except OSError as error:
        raise wrong(f"{name}: {path}: {error.strerror}") from None


def _hosts(netloc: str, parameters: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return hosts and ports of a URL, from before its path or from its parameters."""
    given = netloc.rpartition("@")[2]
    if not given:
        hosts = parameters["host"].split(",") if parameters.get("host") else []
        return hosts, parameters.get("port", "").split(",")
    hosts, ports = [], []
    for part in given.split(","):
        if part.startswith("["):
            host, _, port = part[1:].partition("]")
            port = port.removeprefix(":")
        else:
            host, _, port = part.partition(":")
        if port and not port.isdecimal():
            raise wrong(QUOTING)
        hosts.append(unquote(host))
        ports.append(port)
    return hosts, ports


def _addresses(hostaddr: str, hosts: list[str]) -> dict[str, str]:
    if not hostaddr:
        return {}
    addresses = hostaddr.split(",")
    if hosts and len(addresses) != len(hosts):
        raise wrong("host and hostaddr have different numbers of hosts")
    for address in addresses:
        try:
            socket.getaddrinfo(address, None, flags=socket.AI_NUMERICHOST)
        except (OSError, UnicodeError):
            raise wrong("hostaddr must be a numeric address") from None
    return dict(zip(hosts or addresses, addresses, strict=True))


def _socket_options(own: Mapping[str, str]) -> tuple[tuple[int, str, int], ...]:
    if own.get("keepalives") == "0":
        return ((socket.SOL_SOCKET, "SO_KEEPALIVE", 0),)
    # 0 is the system's default in libpq; here, that of the server.
    return tuple((*_KEEPALIVES[name], int(own[name])) for name in _KEEPALIVES if int(own.get(name) or 0) > 0)


def _timeout(text: str) -> float | None:
    """Return the seconds to wait for a connection; as in libpq, there is no bound with 0 or less."""
    if not text:
        return None
    return float(text) if int(text) > 0 else float("inf")
