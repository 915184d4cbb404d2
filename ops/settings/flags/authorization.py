"""Flags: who may do what."""

from kubechronicle.ops.settings.flags.flag import Flag

FLAGS = (
    Flag(
        name="authorization-mode", placeholder="LIST", default="",
        help="Who decides what a user may do, comma-separated, asked in the order given. There are AlwaysAllow, "
        "AlwaysDeny, ABAC, Node, RBAC and Webhook. Default: Node,RBAC, unless --authorization-config says otherwise.",
    ),
    Flag(
        name="authorization-policy-file", placeholder="FILE", default="",
        help="The policies of the mode ABAC, one JSON object a line. It is read when the server starts.",
    ),
    Flag(
        name="authorization-webhook-config-file", placeholder="FILE", default="",
        help="Whom the mode Webhook asks: a kubeconfig file. Its cluster is the webhook, its user this server.",
    ),
    Flag(
        name="authorization-webhook-version", placeholder="VERSION", default="",
        help="The version of the SubjectAccessReviews it is sent, v1 or v1beta1. Default: v1beta1.",
    ),
    Flag(
        name="authorization-webhook-cache-authorized-ttl", placeholder="DURATION", default="",
        help="How long it is remembered that it allowed something; 0s: not at all. Default: 5m0s.",
    ),
    Flag(
        name="authorization-webhook-cache-unauthorized-ttl", placeholder="DURATION", default="",
        help="How long it is remembered that it did not allow something; 0s: not at all. Default: 30s.",
    ),
    Flag(
        name="authorization-config", placeholder="FILE", default="",
        help="Who decides what a user may do, as a file (AuthorizationConfiguration, apiserver.config.k8s.io), in "
        "place of --authorization-mode and --authorization-webhook-*. It may change while the server runs.",
    ),
)  # fmt: skip
