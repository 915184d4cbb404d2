"""Flags: authentication.

Flags: authorization.
"""

from kubechronicle.ops.settings.flags.flag import Flag

FLAGS = (
    Flag(
        name="client-ca-file", placeholder="FILE", default="",
        help="Authorities (PEM) of client certificates, in addition to the one in DATA_DIR/pki. The common name of a "
        "certificate is the user, its organizations are the groups. Reloaded when it changes.",
    ),
    Flag(
        name="token-auth-file", placeholder="FILE", default="",
        help='Static bearer tokens, one a line: token,user,uid,"group1,group2".',
    ),
    Flag(
        name="authentication-token-webhook-config-file", placeholder="FILE", default="",
        help="A webhook that authenticates bearer tokens unknown to this server: a kubeconfig file. Its cluster is the "
        "webhook, its user is this server.",
    ),
    Flag(
        name="authentication-token-webhook-version", placeholder="VERSION", default="v1beta1",
        help="The version of the TokenReviews for the webhook: v1 or v1beta1.",
    ),
    Flag(
        name="authentication-token-webhook-cache-ttl", placeholder="DURATION", default="2m0s",
        help="How long the webhook's answers are cached; 0s: not at all.",
    ),
    Flag(
        name="enable-bootstrap-token-auth", placeholder="true|false", default="false", switch=True,
        help="Accept bootstrap tokens of nodes: Secrets of type bootstrap.kubernetes.io/token in kube-system.",
    ),
    Flag(
        name="service-account-issuer", placeholder="LIST", repeatable=True,
        default="https://kubernetes.default.svc.cluster.local",
        help="The issuer of service account tokens: an https URL. New tokens have the first issuer. Tokens of the "
        "others are accepted too, so that an issuer can be replaced while its tokens are in use.",
    ),
    Flag(
        name="service-account-signing-key-file", placeholder="FILE", default="",
        help="The private key (PEM; RSA, or ECDSA on P-256, P-384 or P-521) that signs service account tokens. "
        "Servers that share a database need the same one. Default: one made in DATA_DIR/pki.",
    ),
    Flag(
        name="service-account-key-file", placeholder="LIST", default="", repeatable=True,
        help="Further keys (PEM: public keys, private keys or certificates) that verify service account tokens: "
        "predecessors or successors of the key that signs.",
    ),
    Flag(
        name="service-account-signing-endpoint", placeholder="SOCKET", default="",
        help="The Unix socket of an external signer (ExternalJWTSigner v1, a gRPC service) that signs service account "
        "tokens and tells their public keys: a path, or @NAME for an abstract socket. Instead of the two flags above. "
        "Secrets then get no tokens from this server.",
    ),
    Flag(
        name="service-account-jwks-uri", placeholder="URL", default="",
        help="The URL of the public keys in /.well-known/openid-configuration, for verifiers of tokens. "
        "Default: /openid/v1/jwks of this server.",
    ),
    Flag(
        name="service-account-max-token-expiration", placeholder="DURATION", default="0s",
        help="The longest lifetime of a service account token, 1h or more; 0s: no limit.",
    ),
    Flag(
        name="service-account-extend-token-expiration", placeholder="true|false", default="true", switch=True,
        help="Extend a pod's token to a year if the request has the default lifetime, for programs that read the token "
        "only once.",
    ),
    Flag(
        name="service-account-lookup", placeholder="true|false", default="true", switch=True,
        help="Check that the Secret and the service account of a token that is stored in a Secret exist.",
    ),
    Flag(
        name="api-audiences", placeholder="LIST", default="", repeatable=True,
        help="The names of this server in the audiences of tokens, comma-separated. "
        "Default: --service-account-issuer.",
    ),
    Flag(
        name="oidc-issuer-url", placeholder="URL", default="",
        help="The issuer of accepted OpenID Connect tokens: an https URL. Its keys are read from "
        "URL/.well-known/openid-configuration.",
    ),
    Flag(
        name="oidc-client-id", placeholder="ID", default="",
        help="The audience that the issuer's tokens must have; required with --oidc-issuer-url.",
    ),
    Flag(
        name="oidc-username-claim", placeholder="CLAIM", default="",
        help="The claim with the user name. Default: sub. With the claim email, unverified addresses are rejected.",
    ),
    Flag(
        name="oidc-username-prefix", placeholder="TEXT", default="",
        help="A prefix of the user name; - means none. Default: the issuer's URL and #, but none for the claim email.",
    ),
    Flag(
        name="oidc-groups-claim", placeholder="CLAIM", default="",
        help="The claim with the user's groups: a string or a list of strings. Default: no groups.",
    ),
    Flag(
        name="oidc-groups-prefix", placeholder="TEXT", default="",
        help="A prefix of each group.",
    ),
    Flag(
        name="oidc-required-claim", placeholder="CLAIM=VALUE", default="", repeatable=True, keeps_commas=True,
        help="A claim that a token must have with this value; may be repeated.",
    ),
    Flag(
        name="oidc-signing-algs", placeholder="LIST", default="", repeatable=True,
        help="The allowed algorithms of signatures, comma-separated: RS256, RS384, RS512, ES256, ES384, ES512, PS256, "
        "PS384, PS512. Default: RS256.",
    ),
    Flag(
        name="oidc-ca-file", placeholder="FILE", default="",
        help="Authorities (PEM) that verify the issuer's certificate. Default: those that the system trusts.",
    ),
    Flag(
        name="authentication-config", placeholder="FILE", default="",
        help="A file (AuthenticationConfiguration, apiserver.config.k8s.io) with the issuers of accepted JWTs, instead "
        "of --oidc-*. It may also configure anonymous requests, instead of --anonymous-auth. Reloaded when it changes.",
    ),
    Flag(
        name="anonymous-auth", placeholder="true|false", default="", switch=True,
        help="Accept requests without a credential, as system:anonymous. Default: true, or as the "
        "AuthenticationConfiguration says; only one of the two may set it.",
    ),
    Flag(
        name="requestheader-client-ca-file", placeholder="FILE", default="",
        help="Authorities (PEM) of authenticating proxies. A proxy shows a certificate from one of them, and names "
        "the user in header fields. Reloaded when it changes. Default: an authority made in DATA_DIR/pki, and the "
        "fields X-Remote-User, X-Remote-Uid, X-Remote-Group and X-Remote-Extra-, unless --proxy-client-cert-file or "
        "another --requestheader-* is given.",
    ),
    Flag(
        name="requestheader-allowed-names", placeholder="LIST", default="", repeatable=True,
        help="The allowed common names of a proxy's certificate, comma-separated. Default: any.",
    ),
    Flag(
        name="requestheader-username-headers", placeholder="LIST", default="", repeatable=True,
        help="Header fields with the user's name, such as X-Remote-User. The first that is present counts.",
    ),
    Flag(
        name="requestheader-uid-headers", placeholder="LIST", default="", repeatable=True,
        help="Header fields with the user's uid, such as X-Remote-Uid.",
    ),
    Flag(
        name="requestheader-group-headers", placeholder="LIST", default="", repeatable=True,
        help="Header fields with the user's groups, such as X-Remote-Group.",
    ),
    Flag(
        name="requestheader-extra-headers-prefix", placeholder="LIST", default="", repeatable=True,
        help="Prefixes of header fields with further attributes of the user, such as X-Remote-Extra-.",
    ),
    Flag(
        name="proxy-client-cert-file", placeholder="FILE", default="",
        help="The client certificate (PEM) that this server shows to extension API servers, in front of which it names "
        "users in header fields. Reloaded when it changes. Default: one made in DATA_DIR/pki, unless "
        "--requestheader-client-ca-file is given.",
    ),
    Flag(
        name="proxy-client-key-file", placeholder="FILE", default="",
        help="The private key of --proxy-client-cert-file.",
    ),
    Flag(
        name="enable-aggregator-routing", placeholder="true|false", default="false", switch=True,
        help="Reach extension API servers and webhooks at endpoints of their Services. Without it, at the cluster IP, "
        "and at an endpoint only if the cluster IP takes no connection.",
    ),
    Flag(
        name="aggregator-reject-forwarding-redirect", placeholder="true|false", default="true", switch=True,
        help="Answer 502 instead of a redirect of an extension API server.",
    ),
)  # fmt: skip


AUTHORIZATION = (
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
