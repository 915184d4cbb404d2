"""Flags: where the server is, and how it is known."""

from kubechronicle.ops.settings.flags.flag import Flag

FLAGS = (
    Flag(
        name="bind-address", placeholder="IP", default="0.0.0.0",
        help="The address to listen on; 0.0.0.0 and :: mean all.",
    ),
    Flag(
        name="secure-port", placeholder="PORT", default="6443",
        help="The port to serve HTTPS on; 0 takes a free one, told in the first line of output and admin.kubeconfig.",
    ),
    Flag(
        name="advertise-address", placeholder="IP", default="",
        help="The address at which the cluster reaches this server: the endpoint of the Service `kubernetes`. "
        "Default: --bind-address, or if that is all addresses, the one of the default route.",
    ),
    Flag(
        name="external-hostname", placeholder="NAME", default="",
        help="A further name clients use for this server; its serving certificate is valid for it.",
    ),
    Flag(
        name="tls-cert-file", placeholder="FILE", default="",
        help="Serving certificate (PEM), with intermediates after it. Default: one made in DATA_DIR/pki.",
    ),
    Flag(
        name="tls-private-key-file", placeholder="FILE", default="",
        help="The private key of --tls-cert-file.",
    ),
    Flag(
        name="root-ca-file", placeholder="FILE", default="",
        help="Authorities (PEM) by which pods know this server: the ConfigMap kube-root-ca.crt of every namespace. "
        "Default: --tls-cert-file if given, else the one in DATA_DIR/pki. Servers on one database need the same file, "
        "with the authorities of all of them, or must share one authority.",
    ),
    Flag(
        name="enable-ui", placeholder="BOOL", default="false", switch=True,
        help="Serve a web page about history at /ui/, to those who may get that path; `kubechronicle ui` opens it.",
    ),
)  # fmt: skip
