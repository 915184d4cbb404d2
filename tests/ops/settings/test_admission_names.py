"""The help of --disable-admission-plugins names all default plugins."""

from __future__ import annotations

from kubechronicle.actors.admission import plugins
from kubechronicle.ops.settings.flags.running import FLAGS


def test_the_help_lists_the_default_plugins_in_order() -> None:
    (flag,) = (flag for flag in FLAGS if flag.name == "disable-admission-plugins")
    listed = flag.help.partition(": ")[2].removesuffix(".").split(", ")
    assert listed == [name for name in plugins.NAMES if name in plugins.DEFAULT]
