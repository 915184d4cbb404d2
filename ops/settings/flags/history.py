"""Flags: history, and encryption at rest."""

from kubechronicle.ops.settings.flags.flag import Flag

FLAGS = (
    Flag(
        name="history-retention", placeholder="RESOURCE=AGE[,CHANGES]", default="", repeatable=True, keeps_commas=True,
        help="How long the history of a resource is kept, and how many changes at most: `pods=30d`, "
        "`deployments.apps=forever`, `pods=30d,100000`; `*` means all resources not named. May be repeated, and "
        "overrides --history-retention-file. Default: a year, but a day for events and leases.",
    ),
    Flag(
        name="history-retention-file", placeholder="FILE", default="",
        help="The same as a YAML file: `retention`, a list of `resource`, `age` and `changes`.",
    ),
    Flag(
        name="history-archive", placeholder="DIR", default="",
        help="The directory for archives: history is written there, as compressed JSON lines, before it is dropped. "
        "Made if missing. Default: history is dropped without an archive. Servers that share a database all need one, "
        "and so does `compact`.",
    ),
    Flag(
        name="record", placeholder="FILE", default="",
        help="Record accesses in the log: a Policy of audit.k8s.io/v1. Of the requests whose level in this policy is "
        "not None, refusals (403), sessions (exec, attach, port-forward) with their ends, and issued tokens of service "
        "accounts become AccessRecords. Reloaded when it changes.",
    ),
    Flag(
        name="witness", placeholder="URL", default="", repeatable=True,
        help="A time-stamping service (RFC 3161) that signs the state of the log every hour; may be repeated. The log "
        "keeps its tokens, and `verify --witness` proves by them that nothing before was rewritten.",
    ),
)  # fmt: skip


ENCRYPTION = (
    Flag(
        name="encryption-provider-config", placeholder="FILE", default="",
        help="A file (EncryptionConfiguration, apiserver.config.k8s.io/v1) with the providers that encrypt the "
        "contents of resources in the log: aesgcm, aescbc, secretbox, kms (v2), identity. Servers that share a "
        "database need the same keys. Default: contents are stored as plaintext.",
    ),
    Flag(
        name="encryption-provider-config-automatic-reload", placeholder="true|false", default="false", switch=True,
        help="Reload the file of --encryption-provider-config when it changes. Its key services must be healthy then; "
        "otherwise the former configuration stays.",
    ),
)  # fmt: skip
