"""The server's TLS contexts: the default one and those of further certificates, rebuilt when their files change.

Client certificates are requested, not required, and not verified in the handshake. For each request, authenticators
check the chain to an authority, its use and all dates (authentication/authorities.py): a certificate that they refuse
is answered by 401, as in kube-apiserver, unless a token comes with it. Where OpenSSL's functions cannot be called
(openssl.py), the handshake fails for a certificate of none of the authorities, or one that is not for clients.

Sessions of TLS 1.3 are not resumed. One of TLS 1.2 may be, while the context is the same. It has the whole chain
of its first handshake, which authenticators check as any other.

A further certificate (--tls-sni-cert-key) is chosen by the name that the client asks for (SNI, RFC 6066 §3), or by the
local address if it asks for none.
"""

from __future__ import annotations

import logging
import os
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address

from cryptography import x509
from cryptography.x509.oid import NameOID

from kubechronicle.api.values import names
from kubechronicle.http.wire import openssl

logger = logging.getLogger(__name__)

RELOAD_INTERVAL = 0.01
"""Seconds between two checks of the certificate files: cheap in a burst of connections, and practically immediate."""

NO_CHECK_TIME = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which Python lacks."""

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""For TLS 1.2 only ciphers with forward secrecy and AEAD (RFC 9113 §9.2.2 forbids others for HTTP/2), as in 1.3."""
OLD_CIPHERS = "ECDHE+AES:@SECLEVEL=0"
"""Added for TLS 1.0 and 1.1, which have no AEAD and sign by SHA-1."""


@dataclass(frozen=True, slots=True)
class NamedCertificate:
    """A further certificate. ``names``: for which it is served; none: those in the certificate."""

    certificate: str
    private_key: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TLSOptions:
    """The properties of all contexts.

    ``ciphers``: of TLS 1.2 and older, in OpenSSL's names; "" for the default ones.
    ``groups``: of the key exchange, in OpenSSL's names; none for the default ones.
    """

    minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    ciphers: str = ""
    groups: tuple[str, ...] = ()
    http2: bool = True


@dataclass(frozen=True, slots=True)
class TLSFiles:
    certificate: str
    private_key: str
    client_cas: tuple[str, ...] = ()
    named: tuple[NamedCertificate, ...] = ()
    options: TLSOptions = field(default_factory=TLSOptions)

    def fingerprint(self) -> tuple[tuple[int, int, int], ...]:
        """Return a value that changes when a file is replaced or rewritten. Raises OSError."""
        further = [path for each in self.named for path in (each.certificate, each.private_key)]
        stats = [os.stat(path) for path in (self.certificate, self.private_key, *self.client_cas, *further)]
        return tuple((stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats)


def server_context(files: TLSFiles) -> ssl.SSLContext:
    """Return a context: TLS 1.2 and later, ALPN h2 and http/1.1, client certificates verified if sent. Raises OSError,
    ssl.SSLError."""
    context = _context(files, files.certificate, files.private_key)
    if files.named:
        chosen = contexts_by_name(files)

        def choose(connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext) -> None:
            asked = name if name is not None else _local_address(connection)
            other = _for_name(chosen, asked.lower()) if name is not None else chosen.get(asked)
            if other is not None:
                connection.context = other

        context.sni_callback = choose  # None continues the handshake
    return context


def contexts_by_name(files: TLSFiles) -> Mapping[str, ssl.SSLContext]:
    """Return a context for each name of the further certificates. An earlier certificate precedes a later one, and a
    name that the operator gives precedes one in a certificate."""
    given: dict[str, ssl.SSLContext] = {}
    extracted: dict[str, ssl.SSLContext] = {}
    for each in files.named:
        context = _context(files, each.certificate, each.private_key)
        for name in each.names:
            given.setdefault(name, context)
        if not each.names:
            for name in names_in(each.certificate):
                extracted.setdefault(name, context)
    return extracted | given


def names_in(file: str) -> list[str]:
    """Return the names for which a certificate (PEM) is served: its common name, if it is a domain, and its DNS names.
    Raises OSError, ValueError."""
    with open(file, "rb") as pem:
        certificate = x509.load_pem_x509_certificates(pem.read())[0]
    found = [str(each.value) for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    found = [name for name in found if _is_domain(name)]
    try:
        alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return found
    return [*found, *alternative.get_values_for_type(x509.DNSName)]


def _is_domain(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return name == "*" or not names.dns_subdomain(name.removeprefix("*."))
    return False


def _context(files: TLSFiles, certificate: str, private_key: str) -> ssl.SSLContext:
    context, options = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), files.options
    old = options.minimum < ssl.TLSVersion.TLSv1_2
    context.minimum_version = options.minimum
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.num_tickets = 0
    # The client chooses the cipher, by its hardware. Go clients choose AES-128, a tenth faster than OpenSSL's choice.
    context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_ciphers((options.ciphers or CIPHERS) + (f":{OLD_CIPHERS}" if old else ""))
    context.set_alpn_protocols(["h2", "http/1.1"] if options.http2 else ["http/1.1"])
    if options.groups and (problem := openssl.set_groups(context, options.groups)):
        raise ValueError(problem)
    context.load_cert_chain(certificate, private_key)
    if files.client_cas:
        context.verify_mode = ssl.CERT_OPTIONAL
        # An intermediate authority may be trusted without its issuer (as in Go).
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | NO_CHECK_TIME
        for file in files.client_cas:
            context.load_verify_locations(file)
        openssl.accept_any_certificate(context)
    return context


def _for_name(chosen: Mapping[str, ssl.SSLContext], name: str) -> ssl.SSLContext | None:
    """Return the context of a name, or of the wildcard for its first label (as Go's crypto/tls)."""
    name = name.rstrip(".")
    return chosen.get(name) or chosen.get("*." + name.partition(".")[2])


def _local_address(connection: ssl.SSLObject | ssl.SSLSocket) -> str:
    return str(connection.getsockname()[0]) if isinstance(connection, ssl.SSLSocket) else ""


class ReloadingContext:
    """The context for new connections: rebuilt when its files change; the former one is kept if that fails."""

    def __init__(self, files: TLSFiles) -> None:
        """Raises OSError, ValueError or ssl.SSLError when the files cannot be used."""
        self._files = files
        self._fingerprint = files.fingerprint()
        self._context = server_context(files)
        self._looked = time.monotonic()

    def current(self) -> ssl.SSLContext:
        now = time.monotonic()
        if now - self._looked >= RELOAD_INTERVAL:
            self._looked = now
            self._reload()
        return self._context

    def _reload(self) -> None:
        try:
            fingerprint = self._files.fingerprint()
            if fingerprint == self._fingerprint:
                return
            # Remembered before the attempt: a half-written pair is logged once and retried after the next change.
            self._fingerprint = fingerprint
            self._context = server_context(self._files)
            logger.info("serving certificate reloaded from %s", self._files.certificate)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            logger.warning("serving certificate not reloaded, the former one stays: %s", error)
