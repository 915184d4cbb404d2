"""Flags: the database, the served API, and limits; objects that the server itself keeps, and defaults of objects.

Also connections to the kubelets of nodes, and proxies on the way to them and others.
"""

from kubechronicle.ops.settings.flags.flag import Flag

FLAGS = (
    Flag(
        name="database-url", placeholder="URL", default="", environment="DATABASE_URL",
        help="The Postgres database of the log: postgresql://user:password@host:5432/database. "
        "Default: an embedded Postgres in DATA_DIR/postgres.",
    ),
    Flag(
        name="database-direct-url", placeholder="URL", default="", environment="DATABASE_DIRECT_URL",
        help="The address of the same database without a pooler, if --database-url leads to a connection pooler in "
        "transaction mode: for LISTEN, migrations and retention. Reads and writes go through the pooler.",
    ),
    Flag(
        name="database-url-overrides", placeholder="LIST", default="", repeatable=True,
        environment="DATABASE_URL_OVERRIDES",
        help="Databases of single resources, comma-separated: GROUP/RESOURCE#URL, such as "
        "/events#postgresql://…,coordination.k8s.io/leases#postgresql://…. Events and Leases alone may have one: most "
        "requests of a cluster are about them. Each database has a log with revisions of its own. All servers need the "
        "same value; `kubechronicle move-resources` moves objects (docs/databases.md).",
    ),
    Flag(
        name="history-database-url", placeholder="URL", default="", environment="HISTORY_DATABASE_URL",
        help="A hot standby of the database of --database-url: searches and lists of the past run there, and see each "
        "change acknowledged before. While it is behind or away, the database of --database-url answers them.",
    ),
    Flag(
        name="shared-keys-encryption-file", placeholder="FILE", default="",
        help="Share the authorities and the key of service account tokens in DATA_DIR/pki with the other servers on "
        "--database-url. The database keeps them, encrypted with the key in this file: 32 bytes in base64, the same "
        "for each server.",
    ),
    Flag(
        name="storage-initialization-timeout", placeholder="DURATION", default="1m0s",
        help="How long a start waits for the database of --database-url while it refuses connections, starts up, or "
        "its host is unknown; 0s: not at all.",
    ),
    Flag(
        name="data-dir", placeholder="DIR", default="./data",
        help="The directory of certificates, admin.kubeconfig and the embedded Postgres; made if missing.",
    ),
    Flag(
        name="workers", placeholder="N", default="1",
        help="The number of serving processes, 1 to 64. Several processes use more cores; they share the port and the "
        "database, and a further process supervises them. SIGHUP replaces them one by one. The limits below hold for "
        "each process.",
    ),
    Flag(
        name="ephemeral", placeholder="true|false", default="false", switch=True,
        help="For tests: keep the log in memory, and the keys in a directory that is removed at the end unless "
        "--data-dir names it. The server can be reset (docs/testing.md).",
    ),
    Flag(
        name="ephemeral-linger", placeholder="DURATION", default="5m0s",
        help="How long a prepared process without servers waits for the next start with --ephemeral, which it makes "
        "fast; 0s: no such process is started.",
    ),
    Flag(
        name="ephemeral-archive", placeholder="PATH[@N-M]", default="",
        help="With --ephemeral: serve the history in these archives, to read alone, instead of an empty log. PATH is a "
        "directory of --history-archive or a file of `archive parquet`; @N-M are the revisions (docs/retention.md).",
    ),
    Flag(
        name="service-cluster-ip-range", placeholder="CIDR", default="10.0.0.0/24",
        help="The range of cluster IPs. Its first address belongs to the Service `kubernetes`. For dual-stack: one "
        "range of IPv4 and one of IPv6, comma-separated, the primary first. ServiceCIDR objects add further ranges.",
    ),
    Flag(
        name="service-node-port-range", placeholder="PORTS", default="30000-32767",
        help="The node ports for Services of type NodePort and LoadBalancer, both ends included.",
    ),
    Flag(
        name="runtime-config", placeholder="LIST", default="", repeatable=True,
        help="API versions to enable or disable, comma-separated: GROUP/VERSION=true or =false (v1 for the core "
        "group), GROUP/VERSION/RESOURCE=…, api/all=…, api/ga=…, api/beta=…, api/alpha=…; the narrower key wins. "
        "Disabled by default: autoscaling/v2beta1, autoscaling/v2beta2, batch/v1beta1, policy/v1beta1, "
        "discovery.k8s.io/v1beta1.",
    ),
    Flag(
        name="feature-gates", placeholder="LIST", default="", repeatable=True,
        help="Feature gates, comma-separated: GATE=true or =false, for each gate of v1.37. AllAlpha and AllBeta set "
        "all others of their stage. A gate that changes nothing here is a warning; docs/feature-gates.md lists the "
        "others.",
    ),
    Flag(
        name="emulated-version", placeholder="VERSION", default="", repeatable=True,
        help="The version of Kubernetes whose API, feature gates and defaults are served: 1.34 to 1.37, or "
        "kube=1.34.",
    ),
    Flag(
        name="min-compatibility-version", placeholder="VERSION", default="", repeatable=True,
        help="The oldest version of the servers that work beside this one, at most --emulated-version. Default: the "
        "minor version before that.",
    ),
    Flag(
        name="emulation-forward-compatible", placeholder="true|false", default="false", switch=True,
        help="Serve the newer versions of resources that the emulated version serves, too; no alpha versions.",
    ),
    Flag(
        name="runtime-config-emulation-forward-compatible", placeholder="true|false", default="false", switch=True,
        help="Serve the versions that --runtime-config enables, even if the emulated version does not have them yet; "
        "otherwise they are refused.",
    ),
    Flag(
        name="controllers", placeholder="LIST", default="*", may_be_empty=True,
        help="The control loops to run, comma-separated: * means all, NAME adds one, -NAME removes one; empty: none.",
    ),
    Flag(
        name="event-ttl", placeholder="DURATION", default="1h0m0s",
        help="How long an Event is kept after its last write, in whole seconds; 0s: for ever.",
    ),
    Flag(
        name="admission-control", placeholder="LIST", default="",
        help="All admission plugins to run, comma-separated. Deprecated in Kubernetes: use the next two flags.",
    ),
    Flag(
        name="enable-admission-plugins", placeholder="LIST", default="",
        help="Admission plugins to run in addition to the default ones, comma-separated: AlwaysAdmit, "
        "NamespaceAutoProvision, NamespaceExists, LimitPodHardAntiAffinityTopology, AlwaysPullImages, "
        "PodNodeSelector, PodTolerationRestriction, EventRateLimit, ExtendedResourceToleration, "
        "OwnerReferencesPermissionEnforcement, DenyServiceExternalIPs, AlwaysDeny.",
    ),
    Flag(
        name="disable-admission-plugins", placeholder="LIST", default="",
        help="Default admission plugins not to run, comma-separated: NamespaceLifecycle, LimitRanger, "
        "ServiceAccount, NodeRestriction, TaintNodesByCondition, PodSecurity, Priority, "
        "DefaultTolerationSeconds, DefaultStorageClass, StorageObjectInUseProtection, PodGroupProtection, "
        "PersistentVolumeClaimResize, RuntimeClass, CertificateApproval, CertificateSigning, "
        "ClusterTrustBundleAttest, CertificateSubjectRestriction, DefaultIngressClass, PodTopologyLabels, "
        "NodeDeclaredFeatureValidator, PodResizeValidator, "
        "MutatingAdmissionPolicy, MutatingAdmissionWebhook, ValidatingAdmissionPolicy, "
        "ValidatingAdmissionWebhook, ResourceQuota.",
    ),
    Flag(
        name="admission-control-config-file", placeholder="FILE", default="",
        help="A file (AdmissionConfiguration, apiserver.config.k8s.io) with the configurations of the plugins "
        "EventRateLimit, PodNodeSelector, PodSecurity and PodTolerationRestriction, or the files with them.",
    ),
    Flag(
        name="request-timeout", placeholder="DURATION", default="1m0s",
        help="The timeout of requests other than watches.",
    ),
    Flag(
        name="min-request-timeout", placeholder="SECONDS", default="1800",
        help="The least time that a watch without a timeout stays open. The time is random, up to twice as long.",
    ),
    Flag(
        name="max-requests-inflight", placeholder="N", default="400",
        help="With priority and fairness: this and the next number together are the seats that all priority levels "
        "share. Without it: the number of concurrent reads. Further requests are answered with 429 (Too Many "
        "Requests); 0: no limit.",
    ),
    Flag(
        name="max-mutating-requests-inflight", placeholder="N", default="200",
        help="As --max-requests-inflight, for writes.",
    ),
    Flag(
        name="enable-priority-and-fairness", placeholder="true|false", default="true", switch=True,
        help="Share the seats among priority levels and flows, as the objects of flowcontrol.apiserver.k8s.io say.",
    ),
    Flag(
        name="tracing-config-file", placeholder="FILE", default="",
        help="Send spans of requests to a collector of OpenTelemetry: a TracingConfiguration "
        "(apiserver.config.k8s.io/v1) with its endpoint and the requests of a million that are traced.",
    ),
    Flag(
        name="profiling", placeholder="true|false", default="true", switch=True,
        help="Offer CPU profiles at /debug/pprof/profile to users with the right to that path.",
    ),
    Flag(
        name="disabled-metrics", placeholder="LIST", default="",
        help="Names of metrics that /metrics leaves out, comma-separated.",
    ),
    Flag(
        name="allow-metric-labels", placeholder="METRIC,LABEL=VALUES", default="", repeatable=True, keeps_commas=True,
        help="The values of a label that /metrics shows, comma-separated; others become `unexpected`. May be given "
        "several times; several pairs in one value are quoted each, as in CSV.",
    ),
    Flag(
        name="allow-metric-labels-manifest", placeholder="FILE", default="",
        help="A YAML file with allowListMapping: a mapping from METRIC,LABEL to VALUES, as in --allow-metric-labels, "
        "which overrides it.",
    ),
    Flag(
        name="encoding-cache-mib", placeholder="MIB", default="",
        help="Most memory for cached encodings: objects as protobuf, as table rows and as metadata, lists and pages; "
        "0: none. Without it, a quarter of the memory limit, shared by all workers. The cache uses as much of it as "
        "the lists of the present objects need. The metrics kubechronicle_encoding_cache_… show its effect.",
    ),
    Flag(
        name="shutdown-delay-duration", placeholder="DURATION", default="0s",
        help="How long to serve after SIGTERM while /readyz fails, so that load balancers choose other servers.",
    ),
    Flag(
        name="shutdown-send-retry-after", placeholder="true|false", default="false", switch=True,
        help="After --shutdown-delay-duration, answer new requests with 429 and Retry-After until the running ones are "
        "answered. Otherwise the port closes at once.",
    ),
    Flag(
        name="shutdown-watch-termination-grace-period", placeholder="DURATION", default="0s",
        help="The time over which watches end when the server stops; 0s: all at once.",
    ),
    Flag(
        name="livez-grace-period", placeholder="DURATION", default="0s",
        help="The time after the start in which /livez does not fail.",
    ),
    Flag(
        name="logging-format", placeholder="FORMAT", default="text",
        help="The format of the log: text (klog's) or json.",
    ),
    Flag(
        name="v", placeholder="N", default="0",
        help="The verbosity of the log, 0 to 10.",
    ),
    Flag(
        name="vmodule", placeholder="LIST", default="",
        help="Verbosities of single files, comma-separated: PATTERN=N, where * and ? stand for any characters of a "
        "file's name without its suffix. In the format text only.",
    ),
)  # fmt: skip


CLUSTER = (
    Flag(
        name="kubernetes-service-node-port", placeholder="PORT", default="0",
        help="Make the Service `kubernetes` one of type NodePort with this port; 0: of type ClusterIP. An existing "
        "Service stays as it is.",
    ),
    Flag(
        name="endpoint-reconciler-type", placeholder="TYPE", default="lease",
        help="lease: keep the addresses of running servers in the endpoints of the Service `kubernetes`. none: leave "
        "these endpoints to others. The former master-count works like lease.",
    ),
    Flag(
        name="default-not-ready-toleration-seconds", placeholder="SECONDS", default="300",
        help="How long a pod stays on a node that is not ready, unless it says otherwise.",
    ),
    Flag(
        name="default-unreachable-toleration-seconds", placeholder="SECONDS", default="300",
        help="How long a pod stays on a node that is unreachable, unless it says otherwise.",
    ),
    Flag(
        name="allow-privileged", placeholder="true|false", default="true", switch=True,
        help="Allow privileged containers. kube-apiserver's default is false, and every installer sets true; "
        "PodSecurity admission is the finer means.",
    ),
)  # fmt: skip


NODES = (
    Flag(
        name="simulated-nodes", placeholder="N", default="",
        help="For tests: simulate this many nodes, and all pods on them (docs/testing.md). 0 makes no nodes, but leads "
        "each Node with the annotation kwok.x-k8s.io/node: fake. Without the flag, nothing is simulated.",
    ),
    Flag(
        name="simulated-scheduler", placeholder="true|false", default="true", switch=True,
        help="With --simulated-nodes: bind pods to nodes by nodeSelector, node affinity, taints, resources and host "
        "ports. false: a kube-scheduler does it.",
    ),
    Flag(
        name="simulation-stages", placeholder="FILE", default="",
        help="With --simulated-nodes: a YAML file with further Stages (kwok.x-k8s.io/v1alpha1). One with the name of a "
        "built-in Stage replaces it.",
    ),
    Flag(
        name="kubelet-preferred-address-types", placeholder="LIST", repeatable=True,
        default="Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP",
        help="The types of a node's addresses in the order of preference, for connections to its kubelet: logs, exec, "
        "port-forward, proxies.",
    ),
    Flag(
        name="kubelet-port", placeholder="PORT", default="10250",
        help="The port of kubelets whose Node names none.",
    ),
    Flag(
        name="kubelet-timeout", placeholder="DURATION", default="5s",
        help="How long a connection to a kubelet may take to be established.",
    ),
    Flag(
        name="kubelet-certificate-authority", placeholder="FILE", default="",
        help="Authorities (PEM) of the serving certificates of kubelets. Reloaded when it changes. Without it, these "
        "certificates are not verified, as in kube-apiserver.",
    ),
    Flag(
        name="kubelet-client-certificate", placeholder="FILE", default="",
        help="The client certificate (PEM) that this server shows to kubelets. Reloaded when it changes. Default: one "
        "made in DATA_DIR/pki, for the user kube-apiserver-kubelet-client of the group system:masters. Kubelets must "
        "trust DATA_DIR/pki/ca.crt as the authority of clients.",
    ),
    Flag(
        name="kubelet-client-key", placeholder="FILE", default="",
        help="The private key of --kubelet-client-certificate.",
    ),
    Flag(
        name="max-connection-bytes-per-sec", placeholder="BYTES", default="0",
        help="The most bytes a second in each direction of a session: exec, attach, port-forward, and upgraded "
        "connections through a proxy of nodes, pods and Services; 0: no limit.",
    ),
    Flag(
        name="egress-selector-config-file", placeholder="FILE", default="",
        help="An EgressSelectorConfiguration (apiserver.k8s.io/v1beta1): proxies for connections to nodes, pods, "
        "Services, extension API servers and webhooks. Without it, all connections are direct.",
    ),
)  # fmt: skip
