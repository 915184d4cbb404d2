"""Users by the certificate of a connection: its own user, or the one that an authenticating proxy names."""

from __future__ import annotations

import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote

from cryptography import x509
from cryptography.x509.oid import NameOID, ObjectIdentifier

from kubechronicle.api.values.caches import kept_in_order
from kubechronicle.eventlog.measures import Histogram
from kubechronicle.http.authentication.authorities import UNREADABLE, Bundle, chain_to, validity
from kubechronicle.http.authentication.user import CREDENTIAL_ID, CredentialRejected, User
from kubechronicle.http.headers import VIA, has_come_back
from kubechronicle.http.messages import Headers, Request, utf8

# -- x509 --------------------------------------------------------------------------------------------------------------
#
# Client certificates (k8s.io/apiserver, authentication/request/x509).
#
# The common name is the user, each organization a group, the attribute 1.3.6.1.4.1.57683.2 the uid.
#
# The chain is verified for each request against the current authorities of client certificates: a connection may
# outlive its certificate and its authority. The result is cached until the authorities change or a certificate of the
# chain expires.


UID: Final = ObjectIdentifier("1.3.6.1.4.1.57683.2")
# Cached certificates: one per connected client, a few hundred bytes each.
CACHE_SIZE = 4096
# Bytes up to which a certificate is its own cache key.
MAX_KEY: Final = 4096
# Seconds for which the failure of a certificate is cached. It may become valid: its validity may begin later.
PAUSE: Final = 10.0


@dataclass(frozen=True, slots=True)
class _Found:
    """A cache entry, valid from ``begins`` to ``ends`` while ``bundle`` is current.

    ``certificate`` None: no chain leads to an authority.
    """

    bundle: Bundle
    certificate: CertificateUser | None
    begins: float
    ends: float


@dataclass(frozen=True, slots=True)
class CertificateUser:
    """The subject of a verified certificate.

    ``name``: the common name, or ""
    ``user``: None if the subject names no user
    ``ends``: its expiry, in seconds since the epoch
    """

    name: str
    user: User | None
    ends: float


class VerifiedCertificates:
    """Verifier of request certificates against the current authorities, ``trusted()``."""

    def __init__(self, trusted: Callable[[], Bundle], *, clock: Callable[[], float] = time.time) -> None:
        self._trusted = trusted
        self._clock = clock
        self._known: OrderedDict[bytes, _Found] = kept_in_order("client certificates")

    def user_of(self, request: Request) -> CertificateUser | None:
        """Return the subject of the request's certificate; None without one, or if no chain leads to an authority."""
        der = request.peer_certificate
        if der is None:
            return None
        key = _key_of(der, request.peer_intermediates)
        bundle, now = self._trusted(), self._clock()
        known = self._known.get(key)
        if known is None or known.bundle is not bundle or not known.begins <= now <= known.ends:
            known = _look(bundle, der, request.peer_intermediates, now)
            self._known[key] = known
            if len(self._known) > CACHE_SIZE:
                self._known.popitem(last=False)
        return known.certificate


def _key_of(der: bytes, intermediates: tuple[bytes, ...]) -> bytes:
    """Return the cache key: the whole chain, so that a client with missing intermediates cannot poison an entry.

    Long chains are digested: a client may send intermediates of up to 100 KB.
    """
    if not intermediates and len(der) <= MAX_KEY:
        return der
    digest = hashlib.sha256()
    for each in (der, *intermediates):
        digest.update(b"%d:" % len(each))
        digest.update(each)
    return digest.digest()


def _look(bundle: Bundle, der: bytes, intermediates: tuple[bytes, ...], now: float) -> _Found:
    try:
        leaf = x509.load_der_x509_certificate(der)
        others = [x509.load_der_x509_certificate(each) for each in intermediates]
        chain = chain_to(bundle.certificates, leaf, others, now)
        subject = _read(leaf, der) if chain is not None else None
    except UNREADABLE:
        chain = subject = None
    if chain is None or subject is None:
        return _Found(bundle, None, now, now + PAUSE)
    begins, ends = zip(*map(validity, chain), strict=True)
    return _Found(bundle, subject, max(begins), min(ends))


def _read(certificate: x509.Certificate, der: bytes) -> CertificateUser:
    """Return the certificate's subject. Raises ValueError if it can't be read."""
    ends = validity(certificate)[1]
    subject = certificate.subject
    names = [name.value for name in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = [name.value for name in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    uids = [name.value for name in subject.get_attributes_for_oid(UID)]
    name = names[-1] if names else ""
    texts = tuple(group for group in groups if isinstance(group, str))
    if not isinstance(name, str) or not name:
        return CertificateUser("", None, ends)
    if len(uids) > 1 or not all(isinstance(uid, str) and uid for uid in uids):
        return CertificateUser(name, None, ends)
    extra = {CREDENTIAL_ID: (f"X509SHA256={hashlib.sha256(der).hexdigest()}",)}
    user = User(name=name, uid=str(uids[0]) if uids else "", groups=texts, extra=extra)
    return CertificateUser(name, user, ends)


CERTIFICATE_UID_GATE: Final = "AllowParsingUserUIDFromCertAuth"
"""The gate without which a certificate names no uid of the user."""


class ClientCertificates:
    """The authenticator.

    ``trusted``: returns the current authorities of client certificates
    ``clock``: seconds since the epoch
    ``remaining``: histogram of the remaining lifetime of used certificates
    ``reads_uid``: the user has the uid of the certificate
    """

    def __init__(
        self, trusted: Callable[[], Bundle], *, clock: Callable[[], float] = time.time, reads_uid: bool = True
    ) -> None:
        self._reads_uid = reads_uid
        self._certificates = VerifiedCertificates(trusted, clock=clock)
        self._clock = clock
        self.remaining: Histogram | None = None

    def authenticate(self, request: Request) -> User | None:
        """Return the certificate's user, None without a certificate.

        Raises Rejected if the certificate is not valid for a client or names no user, or if a server has shown it on
        behalf of a client (http/headers.py). kube-apiserver treats a certificate without a common name as anonymous;
        here its sender does not want to be anonymous.
        """
        if request.peer_certificate is None:
            return None
        subject = self._certificates.user_of(request)
        if subject is None or subject.user is None:
            raise CredentialRejected
        if VIA in request.headers.first and has_come_back(request.headers, request.peer_certificate):
            raise CredentialRejected
        if self.remaining is not None:
            self.remaining.note(subject.ends - self._clock())
        return subject.user if self._reads_uid else replace(subject.user, uid="")


# -- request header ----------------------------------------------------------------------------------------------------
#
# The authenticating proxy: it names the user in header fields (--requestheader-*; k8s.io/apiserver,
# authentication/request/headerrequest).
#
#     X-Remote-User: jane    X-Remote-Uid: 17    X-Remote-Group: dev    X-Remote-Extra-Scopes: view
#
# The proxy has a certificate of its own authority, with an allowed common name. From other clients these fields mean
# nothing. The chain removes them from every authenticated request, so that no later code trusts them.


_MALFORMED: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


PROXY_UID_GATE: Final = "RemoteRequestHeaderUID"
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
