"""Flags: who is let in."""

from kubechronicle.ops.settings.flags.flag import Flag

FLAGS = (
    Flag(
        name="client-ca-file", placeholder="FILE", default="",
        help="Authorities (PEM) whose client certificates are believed, beside the one in DATA_DIR/pki: "
        "the common name is the user, the organizations are the groups. Read again when it changes.",
    ),
    Flag(
        name="token-auth-file", placeholder="FILE", default="",
        help='Static bearer tokens, one a line: token,user,uid,"group1,group2".',
    ),
    Flag(
        name="authentication-token-webhook-config-file", placeholder="FILE", default="",
        help="A webhook that is asked whose a bearer token is that nobody else knows: a kubeconfig file. Its cluster "
        "is the webhook, its user this server.",
    ),
    Flag(
        name="authentication-token-webhook-version", placeholder="VERSION", default="v1beta1",
        help="The version of the TokenReviews it is sent, v1 or v1beta1.",
    ),
    Flag(
        name="authentication-token-webhook-cache-ttl", placeholder="DURATION", default="2m0s",
        help="How long its answers are remembered; 0s: not at all.",
    ),
    Flag(
        name="enable-bootstrap-token-auth", placeholder="true|false", default="false", switch=True,
        help="Let nodes in with bootstrap tokens: Secrets of type bootstrap.kubernetes.io/token in kube-system.",
    ),
    Flag(
        name="service-account-issuer", placeholder="LIST", repeatable=True,
        default="https://kubernetes.default.svc.cluster.local",
        help="Who issues service account tokens: an https URL. The first signs; tokens of the others are believed, "
        "too, so that an issuer can be replaced while its tokens are about.",
    ),
    Flag(
        name="service-account-signing-key-file", placeholder="FILE", default="",
        help="The private key (PEM; RSA, or ECDSA on P-256, P-384 or P-521) that signs service account tokens. "
        "Servers that share a database need the same one. Default: one made in DATA_DIR/pki.",
    ),
    Flag(
        name="service-account-key-file", placeholder="LIST", default="", repeatable=True,
        help="Keys (PEM; public ones, or private ones, or certificates) whose service account tokens are believed, "
        "beside the one that signs: those it replaces, or is to be replaced with.",
    ),
    Flag(
        name="service-account-jwks-uri", placeholder="URL", default="",
        help="Where verifiers find the keys, as /.well-known/openid-configuration tells them. "
        "Default: /openid/v1/jwks of this server.",
    ),
    Flag(
        name="service-account-max-token-expiration", placeholder="DURATION", default="0s",
        help="How long a service account token lasts at most, whatever is asked for, 1h or more; 0s: no limit.",
    ),
    Flag(
        name="service-account-extend-token-expiration", placeholder="true|false", default="true", switch=True,
        help="Let a pod's token last a year where nobody said how long it should, for programs that read it only once.",
    ),
    Flag(
        name="api-audiences", placeholder="LIST", default="", repeatable=True,
        help="What this server calls itself in the audiences of tokens, comma-separated. "
        "Default: --service-account-issuer.",
    ),
    Flag(
        name="oidc-issuer-url", placeholder="URL", default="",
        help="An OpenID provider whose ID tokens are believed, as it calls itself in them: an https URL. It is asked "
        "for its keys at URL/.well-known/openid-configuration.",
    ),
    Flag(
        name="oidc-client-id", placeholder="ID", default="",
        help="Whom the provider's tokens must be for (their audience); needed with --oidc-issuer-url.",
    ),
    Flag(
        name="oidc-username-claim", placeholder="CLAIM", default="",
        help="The claim that is the user name. Default: sub. Of email, an address not verified is refused.",
    ),
    Flag(
        name="oidc-username-prefix", placeholder="TEXT", default="",
        help="What stands before the user name; - means nothing. Default: the issuer's URL and #, but nothing before "
        "the claim email.",
    ),
    Flag(
        name="oidc-groups-claim", placeholder="CLAIM", default="",
        help="The claim that holds the user's groups, a text or a list of texts. Default: no groups.",
    ),
    Flag(
        name="oidc-groups-prefix", placeholder="TEXT", default="",
        help="What stands before each group.",
    ),
    Flag(
        name="oidc-required-claim", placeholder="CLAIM=VALUE", default="", repeatable=True, keeps_commas=True,
        help="A claim a token must have with this value; may be given several times.",
    ),
    Flag(
        name="oidc-signing-algs", placeholder="LIST", default="", repeatable=True,
        help="How tokens may be signed, comma-separated: RS256, RS384, RS512, ES256, ES384, ES512, PS256, PS384, "
        "PS512. Default: RS256.",
    ),
    Flag(
        name="oidc-ca-file", placeholder="FILE", default="",
        help="Authorities (PEM) the provider's certificate must be from. Default: those the system trusts.",
    ),
    Flag(
        name="authentication-config", placeholder="FILE", default="",
        help="Whose JWTs are believed and which users they make, as a file (AuthenticationConfiguration, "
        "apiserver.config.k8s.io), in place of --oidc-*; it may also say who comes without a credential, in place of "
        "--anonymous-auth. It may change while the server runs.",
    ),
    Flag(
        name="anonymous-auth", placeholder="true|false", default="", switch=True,
        help="Let requests without a credential in, as system:anonymous. Default: true, or what the "
        "AuthenticationConfiguration says; only one of the two may say it.",
    ),
    Flag(
        name="requestheader-client-ca-file", placeholder="FILE", default="",
        help="Authorities (PEM) of authenticating proxies: who shows a certificate of theirs tells in header fields "
        "who asks. Read again when it changes.",
    ),
    Flag(
        name="requestheader-allowed-names", placeholder="LIST", default="", repeatable=True,
        help="The common names an authenticating proxy's certificate may have, comma-separated. Default: any.",
    ),
    Flag(
        name="requestheader-username-headers", placeholder="LIST", default="", repeatable=True,
        help="Header fields in which a proxy tells the user, the first that is there counts: X-Remote-User.",
    ),
    Flag(
        name="requestheader-uid-headers", placeholder="LIST", default="", repeatable=True,
        help="Header fields in which a proxy tells the user's uid: X-Remote-Uid.",
    ),
    Flag(
        name="requestheader-group-headers", placeholder="LIST", default="", repeatable=True,
        help="Header fields in which a proxy tells the user's groups: X-Remote-Group.",
    ),
    Flag(
        name="requestheader-extra-headers-prefix", placeholder="LIST", default="", repeatable=True,
        help="How header fields begin in which a proxy tells more of the user: X-Remote-Extra-.",
    ),
)  # fmt: skip
