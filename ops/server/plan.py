"""The plan of a server process: the values that `assembly.assemble` needs.

It holds no settings file, no Postgres and no signals, so that in-process tests can make one directly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from kubechronicle.actors.admission import plugins
from kubechronicle.actors.allocation.ranges import ServiceNetwork
from kubechronicle.actors.loops.bootstrap.authentication_trust import Trust
from kubechronicle.actors.loops.server_endpoints import Advertised
from kubechronicle.api.configuration.admission import PluginConfigurations
from kubechronicle.api.configuration.egress_selector import EgressSelection
from kubechronicle.api.configuration.tracing import TracingConfiguration
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.registry.registry import Registry, builtin_registry
from kubechronicle.eventlog.postgres.postmaster_epoch import PostmasterEpoch
from kubechronicle.eventlog.retention.retention import DEFAULT_POLICIES, RetentionPolicy
from kubechronicle.http.app import HttpSettings
from kubechronicle.http.authentication.chain import Anonymous
from kubechronicle.http.authentication.credentials import STANDARD, ProxyHeaders
from kubechronicle.http.authentication.token_issuer import ServiceAccountIssuer
from kubechronicle.http.authentication.user import Authenticator, TokenAuthenticator
from kubechronicle.http.authentication.webhook import TokenWebhook
from kubechronicle.http.authorization.current_authorizers import AuthorizationPlan
from kubechronicle.http.wire.serve_config import ServeConfig
from kubechronicle.ops.server.audit import AuditPlan, ReadsPlan
from kubechronicle.ops.server.controllers import CONTROLLERS
from kubechronicle.ops.server.databases.overrides import Override
from kubechronicle.ops.server.encryption.chains import EncryptionPlan
from kubechronicle.ops.server.worker_messages import LogEnd

if TYPE_CHECKING:
    from kubechronicle.actors.loops.simulated_nodes import Simulation
    from kubechronicle.api.configuration.admission_manifests import Manifests
    from kubechronicle.http.authentication.oidc.authenticator import JwtPlan
    from kubechronicle.http.outgoing.image_reviews import ImageWebhook
    from kubechronicle.http.outgoing.kubeconfig import WebhookUsers
    from kubechronicle.ops.server.worker_messages import WorkerStates


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Values for one server process.

    Requests are authenticated in this order: ``authenticators`` (authenticating proxy, client certificates), then
    bearer tokens by ``static_tokens``, service accounts, bootstrap tokens, ``jwt`` and ``token_webhook``; at last
    ``anonymous``.
    """

    listen: ServeConfig
    advertised: Advertised
    services: ServiceNetwork
    http: HttpSettings
    database_direct_url: str = ""
    """The database's own address, if the server reaches it through a pooler in transaction mode."""
    history_database_url: str = ""
    """The address of a hot standby, for searches and lists of the past."""
    overrides: Sequence[Override] = ()
    """The databases of single resources."""
    authenticators: Sequence[Authenticator] = ()
    static_tokens: Sequence[TokenAuthenticator] = ()
    token_webhook: TokenWebhook | None = None
    jwt: JwtPlan | None = None
    """External issuers of JSON Web Tokens."""
    anonymous: Anonymous = field(default_factory=Anonymous)
    proxy_headers: ProxyHeaders = STANDARD
    trust: Trust = field(default_factory=Trust)
    """The authorities to publish in the ConfigMap extension-apiserver-authentication."""
    issuer: ServiceAccountIssuer | None = None
    """The issuer of service account tokens; None: there are none."""
    bootstrap_tokens: bool = False
    """Accept the bootstrap tokens of nodes."""
    authorization: AuthorizationPlan = field(default_factory=AuthorizationPlan)
    controllers: frozenset[str] = frozenset(CONTROLLERS)
    root_ca: bytes = b""
    """The authorities (PEM) by which pods verify the server; published unless empty."""
    admission_plugins: frozenset[str] = plugins.DEFAULT
    admission: PluginConfigurations = field(default_factory=PluginConfigurations)
    manifests: Mapping[str, tuple[Path, Manifests]] = field(default_factory=dict)
    """The directories with admission configurations, and their objects at the start, by plugin."""
    static_names: bool = False
    """The API refuses new configurations with the names of those from files."""
    webhook_users: Mapping[str, WebhookUsers] = field(default_factory=dict)
    """The credentials for admission webhooks, by the plugin that asks them."""
    image_webhook: ImageWebhook | None = None
    """The webhook that judges the images of pods."""
    audit: AuditPlan | None = None
    encryption: EncryptionPlan | None = None
    """The providers that encrypt contents in the log; None: contents are stored as plaintext."""
    reads: ReadsPlan | None = None
    """Reads to record in the database."""
    accesses: ReadsPlan | None = None
    """Refusals, sessions and tokens to record in the log."""
    registry: Registry = field(default_factory=builtin_registry)
    """The API versions to serve."""
    retention: tuple[RetentionPolicy, ...] = DEFAULT_POLICIES
    history_archive: Path | None = None
    witnesses: Sequence[str] = ()
    """The URLs of time-stamping services that sign the state of the log."""
    egress: Sequence[EgressSelection] = ()
    tracing: TracingConfiguration | None = None
    """The proxies on the way to nodes, pods, Services and webhooks."""
    proxy_client: tuple[Path, Path] | None = None
    """Certificate and key that extension API servers see; None: they see none."""
    rejects_redirects: bool = True
    """Answer 502 instead of the redirect of an extension API server."""
    looks_tokens_up: bool = True
    """Check that the Secret and the account of a token stored in a Secret exist."""
    aggregator_routing: bool = False
    """Reach extension API servers at endpoints of their Services instead of cluster IPs."""
    keeps_endpoints: bool = True
    """Keep the address of this server in the endpoints of the Service `kubernetes`."""
    service_node_port: int = 0
    """The node port of a new Service `kubernetes`; 0: none."""
    features: FeatureGates = field(default_factory=FeatureGates)
    allow_privileged: bool = True
    simulation: Simulation | None = None
    """The nodes and pods that are simulated; None: none are."""
    event_ttl: int = 3600
    """Seconds that an Event is kept; 0: for ever."""
    drain_grace: float = 10.0
    """Seconds for running requests when the server stops."""
    watch_grace: float = 0.0
    """Seconds in which watches end one after the other when the server stops; 0: all at once."""
    server: str = ""
    """The name of this server among those that share the cluster."""
    leading: trio.Event | None = None
    """Set when this worker is to run the control loops. None: the process has no sibling workers."""
    worker: int | None = None
    """The number of this worker, for its metrics."""
    workers: WorkerStates | None = None
    """The states of all workers, as their parent tells them. None: the process has no sibling workers."""
    shared_logs: tuple[LogEnd, ...] = ()
    """The ends of the logs that this worker shares with its siblings: of the main one, and of the overrides."""
    postmaster_epoch: PostmasterEpoch | None = None
    """Given if this process runs the database and alone appends to it (eventlog/consistency.py)."""
    forget: Callable[[int], object] | None = None
    """Forgets the history up to a revision, of a server for tests that may be reset (eventlog/reset.py)."""

    @property
    def name(self) -> str:
        """The name of this process among all that share the cluster."""
        return self.server if self.worker is None else f"{self.server}/{self.worker}"
