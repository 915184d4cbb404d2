"""Client certificates: the common name is the user, each organization a group (Kubernetes' convention).

The TLS layer has verified the chain against --client-ca-file and the dates at the handshake. Dates are checked again
here for each request, because a connection may outlive its certificate, and so is the key usage, which OpenSSL's
server side checks only when the extension says otherwise.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, datetime

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kubechronicle.http.authentication.user import Rejected, User
from kubechronicle.http.messages import Request

# Parsed certificates kept, by their DER bytes: one per connected client, a few hundred bytes each.
CACHE_SIZE = 4096


class ClientCertificates:
    def __init__(self) -> None:
        self._parsed: OrderedDict[bytes, tuple[User, float, float]] = OrderedDict()

    def authenticate(self, request: Request) -> User | None:
        """The certificate's user; None without a certificate. Rejected: expired, not yet valid, or not for clients."""
        der = request.peer_certificate
        if der is None:
            return None
        known = self._parsed.get(der)
        if known is None:
            known = self._parse(der)
            self._parsed[der] = known
            if len(self._parsed) > CACHE_SIZE:
                self._parsed.popitem(last=False)
        user, not_before, not_after = known
        if not not_before <= datetime.now(UTC).timestamp() <= not_after:
            raise Rejected
        return user

    @staticmethod
    def _parse(der: bytes) -> tuple[User, float, float]:
        try:
            certificate = x509.load_der_x509_certificate(der)
            subject = certificate.subject
            names = [str(name.value) for name in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
            groups = tuple(str(name.value) for name in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME))
        except ValueError as error:
            raise Rejected from error
        if not names or not names[-1] or not _for_clients(certificate):
            raise Rejected
        return (
            User(name=names[-1], groups=groups),
            certificate.not_valid_before_utc.timestamp(),
            certificate.not_valid_after_utc.timestamp(),
        )


def _for_clients(certificate: x509.Certificate) -> bool:
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return False
    return ExtendedKeyUsageOID.CLIENT_AUTH in usage or ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in usage
