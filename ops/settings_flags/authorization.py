"""Flags: who may do what."""

from kubechronicle.ops.settings_flags.flag import Flag

FLAGS = (
    Flag(
        name="authorization-mode", placeholder="LIST", default="",
        help="Who decides what a user may do, comma-separated, asked in the order given. There are AlwaysAllow, "
        "AlwaysDeny, ABAC, Node and RBAC. Default: Node,RBAC, unless --authorization-config says otherwise.",
    ),
    Flag(
        name="authorization-policy-file", placeholder="FILE", default="",
        help="The policies of the mode ABAC, one JSON object a line. It is read when the server starts.",
    ),
    Flag(
        name="authorization-config", placeholder="FILE", default="",
        help="Who decides what a user may do, as a file (AuthorizationConfiguration, apiserver.config.k8s.io), in "
        "place of --authorization-mode and --authorization-webhook-*. It may change while the server runs.",
    ),
)  # fmt: skip
