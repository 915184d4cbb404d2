"""Settings on the command line: flags of argparse, and the Settings record from parsed arguments."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kubechronicle.ops import klog
from kubechronicle.ops.settings import settings
from kubechronicle.ops.settings.flags import foreign
from kubechronicle.ops.settings.settings import Settings

log = logging.getLogger(__name__)

ALL = tuple(settings.BY_NAME)


def add_settings(parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
    """Add the flags of these settings, and --config."""
    for name in names:
        flag = settings.BY_NAME[name]
        spellings = ["--v", "-v"] if name == "v" else [f"--{name}"]
        default = f" (default {flag.default})" if flag.default else ""
        optional_value: dict[str, Any] = {"nargs": "?", "const": "true"} if flag.switch else {}
        parser.add_argument(
            *spellings,
            metavar=flag.placeholder,
            dest=flag.name,
            default=None,
            **optional_value,
            action="append" if flag.repeatable else "store",
            help=(flag.help + default).replace("%", "%%"),
        )
    if len(names) == len(ALL):
        for name, other in foreign.BY_NAME.items():
            optional: dict[str, Any] = {"nargs": "?", "const": "true"} if other.switch else {}
            parser.add_argument(f"--{name}", dest=name, help=argparse.SUPPRESS, **optional)
    parser.add_argument("--config", metavar="FILE", help="a YAML file with any of these settings, without the dashes")


def load_settings(arguments: argparse.Namespace) -> Settings:
    """Return the settings in force, and set up logging by them. Raise OperatorError."""
    values = vars(arguments)
    flags = {name: values[name] for name in settings.BY_NAME if values.get(name) is not None}
    for name, value in flags.items():
        if isinstance(value, list) and not settings.BY_NAME[name].keeps_commas:
            flags[name] = ",".join(value)
    config = Path(arguments.config) if arguments.config else None
    given = {name: values[name] for name in foreign.BY_NAME if values.get(name) is not None}
    loaded = settings.load(flags, config_file=config)
    in_file = settings.read_config(config) if config else {}
    named = {name: in_file[name] for name in in_file if name in foreign.BY_NAME} | given
    warnings = foreign.check(named, ephemeral=loaded.ephemeral)
    modules = loaded.vmodule.pairs if loaded.vmodule is not None else ()
    klog.set_up(verbosity=loaded.v, json_format=loaded.logging_format == "json", modules=modules)
    for warning in warnings:
        log.warning(warning)
    return loaded
