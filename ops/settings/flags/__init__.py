"""All flags, one table per theme, in the order of --help and docs/settings.md."""

from kubechronicle.ops.settings.flags import (
    audit,
    authentication,
    authorization,
    cluster,
    encryption,
    history,
    nodes,
    running,
    serving,
    transport,
)
from kubechronicle.ops.settings.flags.flag import Flag

FLAGS: tuple[Flag, ...] = (
    *serving.FLAGS,
    *transport.FLAGS,
    *authentication.FLAGS,
    *authorization.FLAGS,
    *audit.FLAGS,
    *nodes.FLAGS,
    *running.FLAGS,
    *cluster.FLAGS,
    *encryption.FLAGS,
    *history.FLAGS,
)
