"""The authenticating proxy: it names the user in header fields (--requestheader-*; k8s.io/apiserver,
authentication/request/headerrequest).

    X-Remote-User: jane    X-Remote-Uid: 17    X-Remote-Group: dev    X-Remote-Extra-Scopes: view

The proxy has a certificate of its own authority, with an allowed common name. From other clients these fields mean
nothing. The chain removes them from every authenticated request, so that no later code trusts them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from kubechronicle.http.authentication.authorities import Bundle
from kubechronicle.http.authentication.user import User
from kubechronicle.http.authentication.x509 import VerifiedCertificates
from kubechronicle.http.messages import Headers, Request, utf8

_MALFORMED: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


UID_GATE: Final = "RemoteRequestHeaderUID"
"""The gate without which a proxy names no uid of the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyHeaders:
    """Names and prefixes of header fields, in lower case.

    ``allowed_names``: common names of the proxy's certificate; none: any
    """

    username: tuple[str, ...] = ()
    uid: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    extra_prefix: tuple[str, ...] = ()
    allowed_names: tuple[str, ...] = ()

    @property
    def fields(self) -> frozenset[str]:
        return frozenset((*self.username, *self.uid, *self.group))


STANDARD: Final = ProxyHeaders(
    username=("x-remote-user",), uid=("x-remote-uid",), group=("x-remote-group",), extra_prefix=("x-remote-extra-",)
)


class AuthenticatingProxy:
    """The authenticator. ``trusted``: returns the current authorities of the proxy."""

    def __init__(self, trusted: Callable[[], Bundle], headers: ProxyHeaders) -> None:
        self.trusted = trusted
        self.headers = headers
        self._certificates = VerifiedCertificates(trusted)
        self._allowed = frozenset(headers.allowed_names)

    def authenticate(self, request: Request) -> User | None:
        """Return the user that the proxy names.

        Returns None if it names none, or if the certificate is not the proxy's: it may be a client's, and
        ClientCertificates rejects it if it is not.
        """
        if request.peer_certificate is None:
            return None
        subject = self._certificates.user_of(request)
        if subject is None or (self._allowed and subject.name not in self._allowed):
            return None
        fields, wanted = request.headers, self.headers
        name = _first(fields, wanted.username)
        if not name:
            return None
        groups = [utf8(value) for field in wanted.group for value in fields.get_all(field) if value]
        extra = extra_fields(fields, *wanted.extra_prefix)
        return User(name=name, uid=_first(fields, wanted.uid), groups=tuple(groups), extra=extra)


def _first(headers: Headers, names: Sequence[str]) -> str:
    return next((utf8(value) for name in names if (value := headers.get(name))), "")


def extra_fields(headers: Headers, *prefixes: str) -> dict[str, tuple[str, ...]]:
    """Return the values by key of the fields with these prefixes; impersonation uses it, too.

    Keys are in lower case. Percent-encoding allows other characters, which names of fields can't hold.
    """
    extra: dict[str, list[str]] = {}
    for prefix in prefixes:
        for field, value in headers:
            if field.startswith(prefix):
                key = field[len(prefix) :]
                extra.setdefault(key if _MALFORMED.search(key) else unquote(key), []).append(utf8(value))
    return {key: tuple(values) for key, values in extra.items()}
