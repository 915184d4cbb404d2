"""Client certificates: the common name is the user, each organization a group, the attribute 1.3.6.1.4.1.57683.2 the
uid (k8s.io/apiserver, authentication/request/x509).

The TLS layer has verified the chain against all authorities when the connection was made. Here it is verified for each
request against those for client certificates as they are now, because a connection may outlive its certificate, and its
authority. What was found is remembered until the authorities change or a certificate of the chain expires.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.x509.oid import NameOID, ObjectIdentifier

from kubechronicle.http.authentication.authorities import UNREADABLE, Bundle, chain_to, validity
from kubechronicle.http.authentication.metrics import Durations
from kubechronicle.http.authentication.user import CREDENTIAL_ID, Rejected, User
from kubechronicle.http.messages import Request

UID: Final = ObjectIdentifier("1.3.6.1.4.1.57683.2")
# Certificates remembered: one per connected client, a few hundred bytes each.
CACHE_SIZE = 4096
# Bytes of a certificate that are kept as they are.
MAX_KEY: Final = 4096
# Seconds for which a certificate that led nowhere is not looked at again: it may only not be in force yet.
PAUSE: Final = 10.0


@dataclass(frozen=True, slots=True)
class _Found:
    """``certificate`` None: it leads nowhere. Good from ``begins`` to ``ends``, while ``bundle`` is in force."""

    bundle: Bundle
    certificate: Shown | None
    begins: float
    ends: float


@dataclass(frozen=True, slots=True)
class Shown:
    """What a good certificate says. ``user`` None: nobody, though it is good; ``name``: the common name, or "";
    ``ends``: when it expires, in seconds since the epoch."""

    name: str
    user: User | None
    ends: float


class VerifiedCertificates:
    """Certificates that lead to one of the authorities ``trusted`` at the moment of a request."""

    def __init__(self, trusted: Callable[[], Bundle], *, clock: Callable[[], float] = time.time) -> None:
        self._trusted = trusted
        self._clock = clock
        self._known: OrderedDict[bytes, _Found] = OrderedDict()

    def shown(self, request: Request) -> Shown | None:
        """What the request's certificate says; None without one, or if it does not lead to these authorities."""
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
    """A chain's end alone does not tell the chain: whoever sends half of it must not spoil it for others. Whoever has a
    certificate chooses what comes along, up to 100 KB, which is not kept."""
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
        shown = _read(leaf, der) if chain is not None else None
    except UNREADABLE:
        chain = shown = None
    if chain is None or shown is None:
        return _Found(bundle, None, now, now + PAUSE)
    begins, ends = zip(*map(validity, chain), strict=True)
    return _Found(bundle, shown, max(begins), min(ends))


def _read(certificate: x509.Certificate, der: bytes) -> Shown:
    """ValueError: what can't be read."""
    ends = validity(certificate)[1]
    subject = certificate.subject
    names = [name.value for name in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = [name.value for name in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    uids = [name.value for name in subject.get_attributes_for_oid(UID)]
    name = names[-1] if names else ""
    texts = tuple(group for group in groups if isinstance(group, str))
    if not isinstance(name, str) or not name:
        return Shown("", None, ends)
    if len(uids) > 1 or not all(isinstance(uid, str) and uid for uid in uids):
        return Shown(name, None, ends)
    extra = {CREDENTIAL_ID: (f"X509SHA256={hashlib.sha256(der).hexdigest()}",)}
    return Shown(name, User(name=name, uid=str(uids[0]) if uids else "", groups=texts, extra=extra), ends)


class ClientCertificates:
    """The authenticator. ``trusted``: the authorities for clients, as they are now; ``clock``: seconds since the
    epoch; ``remaining`` is told for how long each certificate that is used is still good."""

    def __init__(self, trusted: Callable[[], Bundle], *, clock: Callable[[], float] = time.time) -> None:
        self._certificates = VerifiedCertificates(trusted, clock=clock)
        self._clock = clock
        self.remaining: Durations | None = None

    def authenticate(self, request: Request) -> User | None:
        """The certificate's user; None without a certificate. Rejected: it is no client's certificate in force, or says
        nobody. (kube-apiserver takes whoever shows one without a common name for anonymous; who shows a certificate
        wants to be somebody.)"""
        if request.peer_certificate is None:
            return None
        shown = self._certificates.shown(request)
        if shown is None or shown.user is None:
            raise Rejected
        if self.remaining is not None:
            self.remaining.add(shown.ends - self._clock())
        return shown.user
