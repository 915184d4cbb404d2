"""The entry of the command line: `kubechronicle serve | migrate | …` (commands.py), and `kubectl chronicle` (client).

exit_codes.py explains the exit codes. This module imports next to nothing, because people wait for a history command:
neither the server's settings nor its errors, unless they are needed.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from kubechronicle.ops import terminal
from kubechronicle.ops.client.command_table import COMMANDS as CLIENT_COMMANDS
from kubechronicle.ops.client.command_table import command_first
from kubechronicle.ops.errors import OperatorError, report_mistake


def program() -> NoReturn:
    """Run the command of this process, and end it: the entry point of the installed programs."""
    code = _launch_ephemeral() if _is_ephemeral(sys.argv[1:]) else main()
    if command_first(sys.argv[1:])[:1] and command_first(sys.argv[1:])[0] in CLIENT_COMMANDS:
        try:
            terminal.flush()
        except OSError:
            sys.exit(code)  # the interpreter reports it
        # Nothing is left to do. To take the interpreter apart would take a tenth of the time of a history command.
        os._exit(code)
    sys.exit(code)


def _is_ephemeral(argv: Sequence[str]) -> bool:
    """Check whether these arguments start a server for tests. A configuration file is not asked."""
    given = ("--ephemeral", "--ephemeral=true")
    return argv[:1] == ["serve"] and any(each in given for each in argv) and "--help" not in argv


def _launch_ephemeral() -> int:
    from kubechronicle.ops.ephemeral.launching import launch

    return launch(sys.argv[1:], main)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Only a bug raises."""
    sys.excepthook = terminal.show_traceback
    argv = command_first(sys.argv[1:] if argv is None else argv)
    try:
        if argv and argv[0] in CLIENT_COMMANDS:
            gc.disable()  # until dispatch.run has imported the command: all these objects stay
            from kubechronicle.ops.client import dispatch

            return dispatch.run(argv[0], argv[1:])
        from kubechronicle.ops import commands

        return commands.run(argv)
    except SystemExit:  # --help has been printed
        raise
    except KeyboardInterrupt:
        return 1
    except OperatorError as error:  # the usual one: without the imports of the others
        return report_mistake(error)
    except BaseException as error:
        from kubechronicle.ops.reporting import REPORTED_ERRORS, report_error

        if isinstance(error, REPORTED_ERRORS):
            return report_error(error)
        raise
    finally:
        gc.enable()


if __name__ == "__main__":
    program()
