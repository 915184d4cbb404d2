"""Running one of the commands: its module is imported, given its flags, and run.

A module has ``EXAMPLES`` (for --help), ``add_flags(parser)`` and ``run(given) -> exit code``; ``words`` if it takes
arguments as they are, which are then not parsed here.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from kubechronicle.ops.client.command_table import QUESTIONS, program
from kubechronicle.ops.client.session import unsigned
from kubechronicle.ops.errors import OperatorError


class Parser(argparse.ArgumentParser):
    """Raises instead of printing its usage and exiting."""

    def error(self, message: str) -> NoReturn:
        unknown = re.match(r"unrecognized arguments: (.+)", message)
        told = f"what is {unknown[1]}?" if unknown else message
        raise OperatorError(f"{told}; `{self.prog} --help` has examples")


def module_of(name: str) -> Any:
    return importlib.import_module(f"kubechronicle.ops.client.commands.{name}")


def make_parser(name: str) -> argparse.ArgumentParser:
    module = module_of(name)
    examples = module.EXAMPLES.replace("kubectl chronicle", program())
    parser = Parser(
        prog=f"{program()} {name}",
        description=QUESTIONS[name],
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_flags(parser)
    return parser


def run(name: str, argv: Sequence[str]) -> int:
    """The exit code. OperatorError."""
    module, parser = module_of(name), make_parser(name)
    arguments = [unsigned(each) for each in argv]
    try:
        if hasattr(module, "words"):
            given = module.words(parser, arguments)
        else:
            given = parser.parse_intermixed_args(arguments)
        code: int = module.run(given)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read it has had enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code
