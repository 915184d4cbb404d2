"""Flags: addresses and certificates of the server.

Flags: TLS, HTTP and browsers.
"""

from kubechronicle.ops.settings.flags.flag import Flag

FLAGS = (
    Flag(
        name="bind-address", placeholder="IP", default="0.0.0.0",
        help="The address to listen on; 0.0.0.0 and :: mean all.",
    ),
    Flag(
        name="secure-port", placeholder="PORT", default="6443",
        help="The port to serve HTTPS on; 0 takes a free one, shown in the first line of output and admin.kubeconfig.",
    ),
    Flag(
        name="advertise-address", placeholder="IP", default="",
        help="The address at which the cluster reaches this server: the endpoint of the Service `kubernetes`. "
        "Default: --bind-address, or if that is all addresses or a loopback one, the one of the default route.",
    ),
    Flag(
        name="external-hostname", placeholder="NAME", default="",
        help="A further host name of this server, included in its serving certificate.",
    ),
    Flag(
        name="tls-cert-file", placeholder="FILE", default="",
        help="The serving certificate (PEM), followed by intermediates. Default: one made in DATA_DIR/pki.",
    ),
    Flag(
        name="tls-private-key-file", placeholder="FILE", default="",
        help="The private key of --tls-cert-file.",
    ),
    Flag(
        name="cert-dir", placeholder="DIR", default="",
        help="A directory whose apiserver.crt and apiserver.key are served, if they are there and --tls-cert-file is "
        "not given. None are made there.",
    ),
    Flag(
        name="root-ca-file", placeholder="FILE", default="",
        help="Authorities (PEM) with which pods verify this server: the ConfigMap kube-root-ca.crt of every namespace. "
        "Default: --tls-cert-file if given, otherwise the authority in DATA_DIR/pki. Servers that share a database "
        "share one authority, or each has a file with the authorities of all.",
    ),
    Flag(
        name="enable-logs-handler", placeholder="BOOL", default="false", switch=True,
        help="Serve the files of /var/log of this machine at /logs. Deprecated in Kubernetes.",
    ),
    Flag(
        name="enable-ui", placeholder="BOOL", default="false", switch=True,
        help="Serve a web page about history at /ui/ to users who may get that path; `kubechronicle ui` opens it.",
    ),
)  # fmt: skip


TRANSPORT = (
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
