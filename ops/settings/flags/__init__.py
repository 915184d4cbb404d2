"""All flags, one table per theme, in the order of --help and docs/settings.md."""

from kubechronicle.ops.settings.flags import (
    audit,
    authentication,
    authorization,
    encryption,
    history,
    nodes,
    running,
    serving,
)
from kubechronicle.ops.settings.flags.flag import Flag

FLAGS: tuple[Flag, ...] = (
    *serving.FLAGS,
    *authentication.FLAGS,
    *authorization.FLAGS,
    *audit.FLAGS,
    *nodes.FLAGS,
    *running.FLAGS,
    *encryption.FLAGS,
    *history.FLAGS,
)
