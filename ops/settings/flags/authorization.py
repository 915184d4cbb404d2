"""Flags: authorization."""

from kubechronicle.ops.settings.flags.flag import Flag

FLAGS = (
    Flag(
        name="authorization-mode", placeholder="LIST", default="",
        help="The authorizers, comma-separated, in the order in which they are asked: AlwaysAllow, AlwaysDeny, ABAC, "
        "Node, RBAC and Webhook. Default: Node,RBAC, or those of --authorization-config.",
    ),
    Flag(
        name="authorization-policy-file", placeholder="FILE", default="",
        help="The policies of the mode ABAC, one JSON object a line. Read when the server starts.",
    ),
    Flag(
        name="authorization-webhook-config-file", placeholder="FILE", default="",
        help="The webhook of the mode Webhook: a kubeconfig file. Its cluster is the webhook, its user is this server.",
    ),
    Flag(
        name="authorization-webhook-version", placeholder="VERSION", default="",
        help="The version of the SubjectAccessReviews for the webhook: v1 or v1beta1. Default: v1beta1.",
    ),
    Flag(
        name="authorization-webhook-cache-authorized-ttl", placeholder="DURATION", default="",
        help="How long an answer that allows a request is cached; 0s: not at all. Default: 5m0s.",
    ),
    Flag(
        name="authorization-webhook-cache-unauthorized-ttl", placeholder="DURATION", default="",
        help="How long any other answer is cached; 0s: not at all. Default: 30s.",
    ),
    Flag(
        name="authorization-config", placeholder="FILE", default="",
        help="A file (AuthorizationConfiguration, apiserver.config.k8s.io) with the authorizers, instead of "
        "--authorization-mode and --authorization-webhook-*. Reloaded when it changes.",
    ),
)  # fmt: skip
