"""All settings: one table, from which command line, config file and docs/settings.md follow, and the Settings record.

Flags are named as kube-apiserver's where the notion is the same. Precedence: flag, then config file, then environment
(DATABASE_URL only), then default. A wrong value, an unknown name or a missing file is an OperatorError that says in one
line what is wrong and how to mend it.

Every flag listed here does something; one for a feature to come is added with the feature.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from kubechronicle.ops import settings_types as types
from kubechronicle.ops.errors import OperatorError


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The validated settings; the field of ``--secure-port`` is ``secure_port``. Times in seconds."""

    bind_address: types.IPAddress
    secure_port: types.Port
    advertise_address: types.IPAddress | None
    external_hostname: types.Hostname | None
    tls_cert_file: types.ReadableFile | None
    tls_private_key_file: types.ReadableFile | None
    client_ca_file: types.ReadableFile | None
    root_ca_file: types.ReadableFile | None
    token_auth_file: types.ReadableFile | None
    enable_bootstrap_token_auth: types.Switch
    service_account_issuer: types.Names
    service_account_signing_key_file: types.ReadableFile | None
    service_account_key_file: types.ReadableFiles | None
    service_account_jwks_uri: types.Text | None
    service_account_max_token_expiration: types.Seconds
    service_account_extend_token_expiration: types.Switch
    api_audiences: types.Names | None
    authorization_mode: types.Names
    database_url: types.DatabaseURL | None
    data_dir: types.Directory
    service_cluster_ip_range: types.ServiceRanges
    service_node_port_range: types.PortRange
    runtime_config: types.Pairs | None
    controllers: types.Controllers
    enable_admission_plugins: types.Names | None
    disable_admission_plugins: types.Names | None
    request_timeout: types.Seconds
    min_request_timeout: types.Count
    max_requests_inflight: types.Count
    max_mutating_requests_inflight: types.Count
    shutdown_delay_duration: types.Seconds
    v: types.Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One setting. ``default`` as an operator would write it, "" for none; ``placeholder`` is its value in --help.

    ``repeatable``: given several times on the command line, its values count as one list. ``switch``: without a value
    it means true."""

    name: str
    placeholder: str
    default: str
    help: str
    environment: str = ""
    repeatable: bool = False
    switch: bool = False

    @property
    def field(self) -> str:
        return self.name.replace("-", "_")


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
        name="client-ca-file", placeholder="FILE", default="",
        help="Authorities (PEM) whose client certificates are believed, beside the one in DATA_DIR/pki: "
        "the common name is the user, the organizations are the groups.",
    ),
    Flag(
        name="root-ca-file", placeholder="FILE", default="",
        help="Authorities (PEM) by which pods know this server: the ConfigMap kube-root-ca.crt of every namespace. "
        "Default: --tls-cert-file if given, else the one in DATA_DIR/pki. Servers on one database need the same file, "
        "with the authorities of all of them, or must share one authority.",
    ),
    Flag(
        name="token-auth-file", placeholder="FILE", default="",
        help='Static bearer tokens, one a line: token,user,uid,"group1,group2".',
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
        name="authorization-mode", placeholder="LIST", default="Node,RBAC",
        help="Who decides what a user may do, comma-separated, asked in the order given. There are AlwaysAllow, "
        "AlwaysDeny, Node and RBAC.",
    ),
    Flag(
        name="database-url", placeholder="URL", default="", environment="DATABASE_URL",
        help="The Postgres that holds the log, as postgresql://user:password@host:5432/database. "
        "Default: one of our own, run in DATA_DIR/postgres.",
    ),
    Flag(
        name="data-dir", placeholder="DIR", default="./data",
        help="Where certificates, admin.kubeconfig and the embedded Postgres are kept; made if missing.",
    ),
    Flag(
        name="service-cluster-ip-range", placeholder="CIDR", default="10.0.0.0/24",
        help="The range of cluster IPs; its first address is that of the Service `kubernetes`. For dual-stack two, "
        "comma-separated, one of IPv4 and one of IPv6, the primary first. More can be added as ServiceCIDR objects.",
    ),
    Flag(
        name="service-node-port-range", placeholder="PORTS", default="30000-32767",
        help="The ports of the nodes that Services of type NodePort and LoadBalancer get, both ends included.",
    ),
    Flag(
        name="runtime-config", placeholder="LIST", default="", repeatable=True,
        help="API versions to serve or not to serve, comma-separated: GROUP/VERSION=true or =false (v1 for the core "
        "group), GROUP/VERSION/RESOURCE=…, api/all=…, api/ga=…, api/beta=…, api/alpha=…; the narrower wins. Off by "
        "default: autoscaling/v2beta1, autoscaling/v2beta2, batch/v1beta1, policy/v1beta1, discovery.k8s.io/v1beta1.",
    ),
    Flag(
        name="controllers", placeholder="LIST", default="*",
        help="Control loops to run, comma-separated: * means all, NAME adds one, -NAME leaves one out; empty: none.",
    ),
    Flag(
        name="enable-admission-plugins", placeholder="LIST", default="",
        help="Admission plugins to run beside those that run by default, comma-separated: DenyServiceExternalIPs.",
    ),
    Flag(
        name="disable-admission-plugins", placeholder="LIST", default="",
        help="Admission plugins not to run though they do by default, comma-separated: NamespaceLifecycle, "
        "LimitRanger, ServiceAccount, TaintNodesByCondition, PodSecurity, Priority, DefaultTolerationSeconds, "
        "DefaultStorageClass, StorageObjectInUseProtection, PersistentVolumeClaimResize, RuntimeClass, "
        "DefaultIngressClass, PodTopologyLabels.",
    ),
    Flag(
        name="request-timeout", placeholder="DURATION", default="1m0s",
        help="How long a request other than a watch may take.",
    ),
    Flag(
        name="min-request-timeout", placeholder="SECONDS", default="1800",
        help="How long at least a watch is kept open that asks for no time; up to twice as long, drawn for each.",
    ),
    Flag(
        name="max-requests-inflight", placeholder="N", default="400",
        help="Reads at once, beyond which clients are told to come back later (429); 0: no limit.",
    ),
    Flag(
        name="max-mutating-requests-inflight", placeholder="N", default="200",
        help="Writes at once, likewise.",
    ),
    Flag(
        name="shutdown-delay-duration", placeholder="DURATION", default="0s",
        help="How long to go on serving after SIGTERM with /readyz failing, so that load balancers look elsewhere.",
    ),
    Flag(
        name="v", placeholder="N", default="0",
        help="How much to log, 0 to 10.",
    ),
)  # fmt: skip

BY_NAME = {flag.name: flag for flag in FLAGS}
CONTROLLERS_EMPTY = "controllers"  # the one flag whose empty value means something other than its default


def load(
    flags: Mapping[str, str], *, config_file: Path | None = None, environment: Mapping[str, str] = os.environ
) -> Settings:
    """The settings in force. ``flags``: what the command line gave, by name. OperatorError."""
    given: dict[str, tuple[Any, str]] = {}
    for flag in FLAGS:
        if flag.default:
            given[flag.name] = (flag.default, "")
        if flag.environment and environment.get(flag.environment):
            given[flag.name] = (environment[flag.environment], f" (from ${flag.environment})")
    if config_file is not None:
        given.update({name: (value, f" (in {config_file})") for name, value in read_config(config_file).items()})
    given.update({name: (value, "") for name, value in flags.items()})
    settings = _structure(given)
    _check_together(settings)
    return settings


def read_config(path: Path) -> dict[str, Any]:
    """A YAML mapping of flag names, without the leading dashes, to values. OperatorError."""
    try:
        document = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise OperatorError(f"--config: cannot read {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark is not None else ""
        raise OperatorError(f"--config: {path} is not YAML{where}: {getattr(error, 'problem', error)}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise OperatorError(f"--config: {path} must be a mapping such as `secure-port: 6443`")
    for name in document:
        if name not in BY_NAME:
            raise OperatorError(f"--config: {path}: unknown setting {str(name)!r}{suggestion(str(name))}")
    return document


def suggestion(name: str) -> str:
    """The nearest known name, for an error message."""
    from difflib import get_close_matches

    near = get_close_matches(name.lstrip("-").replace("_", "-"), list(BY_NAME), n=1)
    return f"; did you mean {near[0]!r}?" if near else "; `kubechronicle serve --help` lists them all"


def _structure(given: Mapping[str, tuple[Any, str]]) -> Settings:
    converter = types.make_converter()
    hints = get_type_hints(Settings)
    values: dict[str, Any] = {}
    for flag in FLAGS:
        value, origin = given.get(flag.name, ("", ""))
        if value in ("", None) and flag.name != CONTROLLERS_EMPTY:
            if flag.default:
                raise OperatorError(f"--{flag.name}: needs a value{origin}; leave it out for {flag.default}")
            values[flag.field] = None
            continue
        try:
            values[flag.field] = converter.structure("" if value is None else value, _without_none(hints[flag.field]))
        except ValueError as error:
            raise OperatorError(f"--{flag.name}: {error}{origin}") from None
    return Settings(**values)


def _without_none(hint: Any) -> Any:
    """``T`` of ``T | None``."""
    arguments = getattr(hint, "__args__", ())
    if type(None) not in arguments:
        return hint
    rest = [argument for argument in arguments if argument is not type(None)]
    return rest[0] if len(rest) == 1 else types.IPAddress


def _check_together(settings: Settings) -> None:
    """What only shows when settings are seen side by side."""
    if (settings.tls_cert_file is None) != (settings.tls_private_key_file is None):
        raise OperatorError("--tls-cert-file and --tls-private-key-file: give both or neither")
    if settings.advertise_address is not None and settings.advertise_address.is_unspecified:
        raise OperatorError("--advertise-address: must be one address, not all; leave it out to have it chosen")


assert {flag.field for flag in FLAGS} == {field.name for field in fields(Settings)}
