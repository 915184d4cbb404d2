"""The parts of the server that the handlers of resources work with."""

from __future__ import annotations

from dataclasses import dataclass, field

from kubechronicle.actors.branches.branches import Branches
from kubechronicle.actors.history.verdicts import AuditedPolicies
from kubechronicle.actors.reading.converted_reads import ConvertedEntries
from kubechronicle.actors.reading.reads import ObjectReads
from kubechronicle.actors.store import Store
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.http.audit.shown_secrets import ShownSecrets
from kubechronicle.http.authentication.chain import AuthenticationChain
from kubechronicle.http.authentication.token_issuer import ServiceAccountIssuer
from kubechronicle.http.authorization.decision import AuthorizationChain
from kubechronicle.http.handlers.drain import Drain
from kubechronicle.http.handlers.responses import EncoderChoice
from kubechronicle.http.metrics import Metrics
from kubechronicle.http.outgoing.networks import DIRECT, Networks
from kubechronicle.http.proxying.kept_streams import KeptStreams
from kubechronicle.http.proxying.kubelets import Kubelets
from kubechronicle.http.representation.compression import Compression
from kubechronicle.http.representation.encoding_cache import EncodingCache


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One per server; a request for history or for revisions gets a copy with other ``reads``.

    ``store``: the store that writes go to.
    ``reads``: the source of reads: the store, a moment of the past, or the revisions.
    ``min_watch``: seconds after which a watch ends, plus a random part of the same length (--min-request-timeout).
    ``drain``: ends the watches when the server stops.
    ``encodings``: the cache of encoded objects and lists.
    ``encoders``: the choice of an answer's encoder.
    ``compression``: the compression of watches. ``compressing``: of long answers; None while its feature gate is off.
    ``watch_list``, ``sharded``: lists and watches have these features, whose gates are on.
    ``issuer``: the issuer of service account tokens; None if none are issued.
    ``kubelets``: connections to the kubelets of nodes.
    ``networks``: the ways to pods and Services.
    ``kept``: idle connections to pods, Services and kubelets.
    ``session_rate``: bytes a second in each direction of a session; 0: no limit.
    ``shown_secrets``: records Secrets of history whose values are shown.
    ``branches``: the branches that are open here; None: this server has none.
    ``audited``: the policies that only audit, for their verdicts on the log.
    ``features``: the feature gates.
    ``converted``: converts entries for a request in a version that needs a webhook; None for all others.
    """

    store: Store
    reads: ObjectReads
    authentication: AuthenticationChain
    authorization: AuthorizationChain
    metrics: Metrics
    min_watch: float
    drain: Drain
    encodings: EncodingCache
    encoders: EncoderChoice
    compression: Compression
    compressing: Compression | None
    watch_list: bool
    sharded: bool
    issuer: ServiceAccountIssuer | None = None
    kubelets: Kubelets = field(default_factory=Kubelets)
    converted: ConvertedEntries | None = None
    audited: AuditedPolicies | None = None
    branches: Branches | None = None
    networks: Networks = DIRECT
    kept: KeptStreams = field(default_factory=KeptStreams)
    session_rate: int = 0
    features: FeatureGates = field(default_factory=FeatureGates)
    shown_secrets: ShownSecrets = field(default_factory=ShownSecrets)
