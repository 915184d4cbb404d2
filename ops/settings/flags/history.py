"""Flags: how much history is kept."""

from kubechronicle.ops.settings.flags.flag import Flag

FLAGS = (
    Flag(
        name="history-retention", placeholder="RESOURCE=AGE[,CHANGES]", default="", repeatable=True, keeps_commas=True,
        help="How long the history of a resource is kept, and how many changes of it at most: `pods=30d`, "
        "`deployments.apps=forever`, `pods=30d,100000`; `*` for all resources not named. May be repeated, and goes "
        "before --history-retention-file. By default a year, of events and leases a day.",
    ),
    Flag(
        name="history-retention-file", placeholder="FILE", default="",
        help="The same in a YAML file: `retention`, a list of `resource`, `age` and `changes`.",
    ),
    Flag(
        name="history-archive", placeholder="DIR", default="",
        help="Where history goes before it is dropped, as files of compressed JSON lines; made if missing. By default "
        "it is dropped for good. Servers that share a database all need one; give it to `compact`, too.",
    ),
)  # fmt: skip
