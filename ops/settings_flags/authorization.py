"""Flags: who may do what."""

from kubechronicle.ops.settings_flags.flag import Flag

FLAGS = (
    Flag(
        name="authorization-mode", placeholder="LIST", default="Node,RBAC",
        help="Who decides what a user may do, comma-separated, asked in the order given. There are AlwaysAllow, "
        "AlwaysDeny, Node and RBAC.",
    ),
)  # fmt: skip
