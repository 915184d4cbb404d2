"""The authenticating proxy: who shows a certificate of its authority, with a name it may have, tells in fields of the
request who asks (--requestheader-*; k8s.io/apiserver, authentication/request/headerrequest).

    X-Remote-User: jane    X-Remote-Uid: 17    X-Remote-Group: dev    X-Remote-Extra-Scopes: view

From anybody else these fields mean nothing. The chain takes them off every request that is let in, whoever sent it, so
that nobody further in believes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from kubechronicle.http.authentication.authorities import Bundle
from kubechronicle.http.authentication.user import User
from kubechronicle.http.authentication.x509 import VerifiedCertificates
from kubechronicle.http.messages import Headers, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyHeaders:
    """Names of fields, and beginnings of names, in lower case; ``allowed_names``: common names the proxy's certificate
    may have, none: any."""

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
    """The authenticator. ``trusted``: the proxy's authorities, as they are now."""

    def __init__(self, trusted: Callable[[], Bundle], headers: ProxyHeaders) -> None:
        self.trusted = trusted
        self.headers = headers
        self._certificates = VerifiedCertificates(trusted)
        self._allowed = frozenset(headers.allowed_names)

    def authenticate(self, request: Request) -> User | None:
        """Whom the proxy names; None if it names nobody, or the certificate is not the proxy's: it may well be a
        client's, and who knows those rejects it if it is neither."""
        shown = self._certificates.shown(request)
        if shown is None or (self._allowed and shown.name not in self._allowed):
            return None
        fields, wanted = request.headers, self.headers
        name = _first(fields, wanted.username)
        if not name:
            return None
        groups = [_text(value) for field in wanted.group for value in fields.get_all(field) if value]
        extra: dict[str, tuple[str, ...]] = {}
        for prefix in wanted.extra_prefix:
            for field, value in fields:
                if field.startswith(prefix):
                    key = unquote(field[len(prefix) :]).lower()
                    extra[key] = (*extra.get(key, ()), _text(value))
        return User(name=name, uid=_first(fields, wanted.uid), groups=tuple(groups), extra=extra)


def _first(headers: Headers, names: Sequence[str]) -> str:
    return next((_text(value) for name in names if (value := headers.get(name))), "")


def _text(value: str) -> str:
    """Fields are bytes on the wire, and names UTF-8."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value
