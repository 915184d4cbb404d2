"""All flags, one table per theme, in the order in which help and docs/settings.md tell them."""

from kubechronicle.ops.settings.flags import authentication, authorization, history, running, serving
from kubechronicle.ops.settings.flags.flag import Flag

FLAGS: tuple[Flag, ...] = (
    *serving.FLAGS,
    *authentication.FLAGS,
    *authorization.FLAGS,
    *running.FLAGS,
    *history.FLAGS,
)
