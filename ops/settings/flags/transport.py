"""Flags: TLS, HTTP and browsers."""

from kubechronicle.ops.settings.flags.flag import Flag

FLAGS = (
    Flag(
        name="tls-min-version", placeholder="VERSION", default="",
        help="The least version of TLS: VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13. "
        "Default: VersionTLS12.",
    ),
    Flag(
        name="tls-cipher-suites", placeholder="LIST", default="",
        help="The cipher suites of TLS 1.2, comma-separated, by Go's names such as "
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256. Those of TLS 1.3 are always offered. Default: the ECDHE suites with "
        "AES-GCM and ChaCha20.",
    ),
    Flag(
        name="tls-curve-preferences", placeholder="LIST", default="",
        help="The groups of the key exchange, comma-separated, by Go's numbers: 23 (P-256), 24 (P-384), 25 (P-521), 29 "
        "(X25519), 4588 (X25519MLKEM768, from OpenSSL 3.5 on). Default: those of OpenSSL.",
    ),
    Flag(
        name="tls-sni-cert-key", placeholder="FILES", default="", repeatable=True, keeps_commas=True,
        help="A further certificate and its key (PEM), with the names for which it is served: CERTIFICATE,KEY or "
        "CERTIFICATE,KEY:NAME,*.DOMAIN,IP. Without names: those in the certificate. It is reloaded when it changes.",
    ),
    Flag(
        name="disable-http2-serving", placeholder="true|false", default="false", switch=True,
        help="Serve HTTP/1.1 only.",
    ),
    Flag(
        name="http2-max-streams-per-connection", placeholder="N", default="0",
        help="The number of requests at once on an HTTP/2 connection; 0: 1000.",
    ),
    Flag(
        name="goaway-chance", placeholder="FRACTION", default="0",
        help="The fraction of HTTP/2 requests, at most 0.02, after which a connection ends (GOAWAY). Clients behind a "
        "load balancer so reach other servers.",
    ),
    Flag(
        name="permit-port-sharing", placeholder="true|false", default="false", switch=True,
        help="Let other processes listen on the same address and port (SO_REUSEPORT).",
    ),
    Flag(
        name="cors-allowed-origins", placeholder="LIST", default="",
        help="Origins whose web pages may use the API (CORS), as regular expressions (RE2), comma-separated: "
        "^https://example\\.com(:|$).",
    ),
    Flag(
        name="strict-transport-security-directives", placeholder="LIST", default="",
        help="Directives of the field Strict-Transport-Security, comma-separated: max-age=31536000,includeSubDomains. "
        "Default: no such field.",
    ),
)  # fmt: skip
