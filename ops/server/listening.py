"""The settings of TLS and HTTP as the listener needs them."""

from __future__ import annotations

import ssl
from dataclasses import replace
from typing import Final

import re2

from kubechronicle.http.edge import EdgeSettings
from kubechronicle.http.wire.openssl import set_groups
from kubechronicle.http.wire.serve_config import ServeLimits
from kubechronicle.http.wire.tls_context import NamedCertificate, TLSFiles, TLSOptions, contexts_by_name
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.settings.settings import Settings

VERSIONS: Final = {
    "VersionTLS10": ssl.TLSVersion.TLSv1,
    "VersionTLS11": ssl.TLSVersion.TLSv1_1,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}
ALWAYS: Final = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
"""Suites of TLS 1.3, which cannot be chosen, as in Go."""
SUITES: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
}
"""OpenSSL's names of the suites that kube-apiserver knows."""
REMOVED: Final = frozenset({
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA", "TLS_ECDHE_RSA_WITH_RC4_128_SHA", "TLS_RSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA", "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
})  # fmt: skip
"""Suites with broken ciphers, which OpenSSL no longer has."""
FOR_HTTP2: Final = frozenset({"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"})
"""One of these is required for HTTP/2 (RFC 9113 §9.2.2)."""


GROUPS: Final = {"23": "P-256", "24": "P-384", "25": "P-521", "29": "X25519", "4588": "X25519MLKEM768"}
"""OpenSSL's names of the groups that Go knows, by their numbers (IANA, TLS Supported Groups)."""


def tls_options(settings: Settings) -> TLSOptions:
    """Return the options of TLS. Raise OperatorError."""
    return TLSOptions(
        minimum=VERSIONS[settings.tls_min_version or "VersionTLS12"],
        ciphers=_ciphers(settings),
        groups=_groups(settings),
        http2=not settings.disable_http2_serving,
    )


def _ciphers(settings: Settings) -> str:
    given = settings.tls_cipher_suites or ()
    for name in given:
        if name in REMOVED:
            raise OperatorError(f"--tls-cipher-suites: {name} is broken, and OpenSSL no longer has it; leave it out")
        if name not in SUITES and name not in ALWAYS:
            raise OperatorError(f"--tls-cipher-suites: Cipher suite {name} not supported or doesn't exist")
    chosen = [SUITES[name] for name in given if name in SUITES]
    needed = settings.tls_min_version != "VersionTLS13" and not settings.disable_http2_serving
    if given and needed and not FOR_HTTP2 & set(given):
        one_of = " or ".join(sorted(FOR_HTTP2, reverse=True))
        raise OperatorError(f"--tls-cipher-suites: HTTP/2 needs {one_of}; add one, or give --disable-http2-serving")
    return ":".join(chosen)


def _groups(settings: Settings) -> tuple[str, ...]:
    given = settings.tls_curve_preferences or ()
    if unknown := [number for number in given if number not in GROUPS]:
        known = ", ".join(f"{number} ({name})" for number, name in GROUPS.items())
        raise OperatorError(f"--tls-curve-preferences: {unknown[0]} is none of {known}")
    chosen = tuple(GROUPS[number] for number in given)
    if chosen and (problem := set_groups(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), chosen)):
        raise OperatorError(f"--tls-curve-preferences: {problem}")
    return chosen


def named_certificates(settings: Settings) -> tuple[NamedCertificate, ...]:
    """Return the certificates of --tls-sni-cert-key. Raise OperatorError for an unusable file."""
    given = settings.tls_sni_cert_key.files if settings.tls_sni_cert_key is not None else ()
    named = tuple(NamedCertificate(str(certificate), str(key), names) for certificate, key, names in given)
    for each in named:
        try:
            contexts_by_name(TLSFiles("", "", named=(each,)))
        except (OSError, ValueError) as error:
            problem = f"{each.certificate} and {each.private_key} are no certificate (PEM) and its key: {error}"
            raise OperatorError(f"--tls-sni-cert-key: {problem}") from None
    return named


def limits(settings: Settings) -> ServeLimits:
    return replace(
        ServeLimits(),
        streams=settings.http2_max_streams_per_connection or ServeLimits().streams,
        goaway_chance=settings.goaway_chance,
    )


def edge_settings(settings: Settings) -> EdgeSettings:
    """Return the settings of the outermost filters. Raise OperatorError."""
    origins = settings.cors_allowed_origins or ()
    for origin in origins:
        try:
            re2.compile(origin)
        except re2.error as error:
            raise OperatorError(f"--cors-allowed-origins: {origin!r} is no regular expression (RE2): {error}") from None
    return EdgeSettings(
        origins=origins,
        hsts=settings.strict_transport_security_directives or (),
        retry_after=settings.shutdown_send_retry_after,
    )
