"""Flags: where the log is kept, what is served, and within which bounds."""

from kubechronicle.ops.settings.flags.flag import Flag

FLAGS = (
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
        name="workers", placeholder="N", default="1",
        help="Processes that serve, 1 to 64: more than one share the port and the database, and use more cores; one "
        "more looks after them. SIGHUP replaces them one by one. Bounds below are of each.",
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
        name="controllers", placeholder="LIST", default="*", may_be_empty=True,
        help="Control loops to run, comma-separated: * means all, NAME adds one, -NAME leaves one out; empty: none.",
    ),
    Flag(
        name="event-ttl", placeholder="DURATION", default="1h0m0s",
        help="How long an Event is kept after it was last written, in whole seconds; 0s: for ever.",
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
        name="encoding-cache-mib", placeholder="MIB", default="64",
        help="Memory for answers that are kept for who asks next: objects in protobuf, as rows of tables and as "
        "metadata, lists and pages as they are sent; 0: none. /metrics tells what it is good for "
        "(kubechronicle_encoding_cache_…).",
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
