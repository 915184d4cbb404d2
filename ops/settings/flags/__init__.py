"""All flags, one table per theme, in the order of --help and docs/settings.md."""

from kubechronicle.ops.settings.flags import audit, authentication, history, running, serving
from kubechronicle.ops.settings.flags.flag import Flag

FLAGS: tuple[Flag, ...] = (
    *serving.FLAGS,
    *serving.TRANSPORT,
    *authentication.FLAGS,
    *authentication.AUTHORIZATION,
    *audit.FLAGS,
    *running.NODES,
    *running.FLAGS,
    *running.CLUSTER,
    *history.ENCRYPTION,
    *history.FLAGS,
)
