"""Import a command's module, parse its arguments, and run it.

Each module in commands/ is named as its command, with underscores for dashes, and has these names:

``EXAMPLES``: the examples of --help
``add_flags(parser)``
``run(arguments) -> exit code``
``parse(parser, argv) -> arguments``: optional, for a command that passes arguments on unparsed
"""

from __future__ import annotations

import argparse
import gc
import importlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

from kubechronicle.ops import terminal
from kubechronicle.ops.client.command_table import COMMANDS, program_name
from kubechronicle.ops.client.session import close
from kubechronicle.ops.client.subjects import without_sign
from kubechronicle.ops.errors import OperatorError

MOMENT_FLAGS: Final = frozenset(("--since", "--until", "--from", "--to", "--at"))


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """A formatter that names the flags once, below the usage.

    It knows its width. argparse would import shutil for that, with bz2 and lzma, at each flag that is added.
    """

    def __init__(self, prog: str) -> None:
        super().__init__(f"{prog} [flags]", width=terminal.width() - 2)

    def add_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[argparse._MutuallyExclusiveGroup],
        prefix: str | None = None,
    ) -> None:
        super().add_usage(usage, [action for action in actions if not action.option_strings], (), prefix)


class Parser(argparse.ArgumentParser):
    """A parser that raises OperatorError instead of printing its usage and exiting."""

    def error(self, message: str) -> NoReturn:
        problem = message
        if unknown := re.match(r"unrecognized arguments: (.+)", message):
            problem = f"unknown argument {unknown[1]}"
        elif other := re.match(r"argument (\S+): invalid choice: ('.*') \(choose from (.+)\)", message):
            flag, value, choices = other.groups()
            named = f"{flag}: {value}" if flag.startswith("-") else value
            problem = f"{named} is none of " + choices.replace("'", "")
        raise OperatorError(f"{problem}; `{self.prog} --help` has examples")


def make_parser(name: str) -> argparse.ArgumentParser:
    module = _module_of(name)
    examples = module.EXAMPLES.replace("kubectl chronicle", program_name())
    parser = Parser(
        prog=f"{program_name()} {name}",
        description=COMMANDS[name],
        epilog=f"examples:\n{examples}",
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    module.add_flags(parser)
    return parser


def parse(name: str, argv: Sequence[str]) -> argparse.Namespace:
    """Return the arguments of a command. OperatorError."""
    module, parser = _module_of(name), make_parser(name)
    argv = [without_sign(argument) for argument in argv]
    _check_moments(argv)
    if hasattr(module, "parse"):
        arguments: argparse.Namespace = module.parse(parser, argv)
        return arguments
    return parser.parse_intermixed_args(argv)


def _check_moments(argv: Sequence[str]) -> None:
    """Refuse an empty moment, as from a variable that is not set: without it, the answer would be another one."""
    for place, argument in enumerate(argv):
        flag, sign, value = argument.partition("=")
        if flag in MOMENT_FLAGS and (not value if sign else argv[place + 1 : place + 2] == [""]):
            raise OperatorError(f"{flag} is empty: name a moment, as 2h, 14:05, yesterday, a time, a revision or now")


def run(name: str, argv: Sequence[str]) -> int:
    """Run a command and return its exit code. OperatorError."""
    arguments = argparse.Namespace()
    try:
        arguments = parse(name, argv)
        gc.enable()
        code: int = _module_of(name).run(arguments)
        terminal.stdout().flush()
    except BrokenPipeError:
        terminal.stdout().discard()
        return 0
    finally:
        close(arguments)
    return code


def _module_of(name: str) -> Any:
    return importlib.import_module(f"kubechronicle.ops.client.commands.{name.replace('-', '_')}")
