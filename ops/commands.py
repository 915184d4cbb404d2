"""The commands of a server's operator: `kubechronicle serve | migrate | verify | …`.

Flags of settings come from the tables in settings/flags. Each command imports its modules when it runs, so that a quick
command does not wait for the imports of others. The history commands are in ops/client/commands.
"""

from __future__ import annotations

import argparse
import gc
import re
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from kubechronicle.ops import terminal
from kubechronicle.ops.client.command_table import COMMANDS as CLIENT_COMMANDS
from kubechronicle.ops.client.command_table import SERVER_PROGRAM, program_name
from kubechronicle.ops.cluster import flags as cluster_flags
from kubechronicle.ops.command_groups import help_text
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.exit_codes import OK
from kubechronicle.ops.maintenance import flags

if TYPE_CHECKING:
    from kubechronicle.ops.maintenance.witness import WitnessFlags
    from kubechronicle.ops.settings.settings import Settings


class OperatorCommand(NamedTuple):
    summary: str
    add_flags: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    """Returns the exit code."""


class _Parser(argparse.ArgumentParser):
    """A parser that raises OperatorError; argparse would print its usage and exit."""

    def error(self, message: str) -> NoReturn:
        unknown = re.match(r"unrecognized arguments: (\S+)", message)
        if unknown and unknown[1].startswith("-"):
            from kubechronicle.ops.settings.settings import suggestion

            flag = unknown[1].partition("=")[0]
            raise OperatorError(f"unknown flag {flag}{suggestion(flag)}")
        program = program_name()
        if wrong := re.match(r"argument COMMAND: invalid choice: '(\S+)'", message):
            from difflib import get_close_matches

            near = get_close_matches(wrong[1], (*COMMANDS, *CLIENT_COMMANDS), n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"`{program} --help` lists the commands"
            raise OperatorError(f"unknown command {wrong[1]!r}; {hint}")
        raise OperatorError(message)


def make_parser(only: str = "") -> argparse.ArgumentParser:
    """Return the parser of all commands. ``only``: the one command whose flags are needed, "" for those of all."""
    of_kubectl = program_name() != SERVER_PROGRAM
    own = {} if of_kubectl else {name: command.summary for name, command in COMMANDS.items()}
    parser = _Parser(
        prog=program_name(),
        allow_abbrev=False,
        usage=f"{program_name()} COMMAND [flags]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=help_text({**own, **CLIENT_COMMANDS}, of_history=of_kubectl),
        epilog=f"`{program_name()} COMMAND --help` has examples.",
    )
    parsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, help=argparse.SUPPRESS)
    for name, command in COMMANDS.items():
        of_command = parsers.add_parser(name, description=command.summary, allow_abbrev=False)
        if only in ("", name):
            command.add_flags(of_command)
    for name in CLIENT_COMMANDS:
        parsers.add_parser(name, add_help=False)  # ops/client parses the rest
    return parser


def run(argv: Sequence[str]) -> int:
    """Run one command that is not a history command, and return its exit code. Raises REPORTED_ERRORS."""
    if "--version" in argv[:1] or (argv[:1] == ["serve"] and "--version" in argv):
        argv = ["version"]  # as kube-apiserver has it
    if not argv:
        make_parser(only="none").print_help()
        return OK
    arguments = make_parser(only=argv[0]).parse_args(_join_dashed_values(argv))
    return COMMANDS[arguments.command].run(arguments)


def _join_dashed_values(argv: Sequence[str]) -> list[str]:
    """Turn ``--controllers -NAME`` into ``--controllers=-NAME``, and ``--at -2h`` likewise.

    argparse takes a value that begins with a dash only in this form.
    """
    joined: list[str] = []
    for argument in argv:
        if joined and joined[-1] in ("--controllers", "--at") and re.match(r"-[^-]", argument):
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    return joined


def _serve_flags(parser: argparse.ArgumentParser) -> None:
    from kubechronicle.ops.settings.command_line import ALL, add_settings

    add_settings(parser, ALL)


def _serve(arguments: argparse.Namespace) -> int:
    # Off until the server runs (replica.py): a start makes many objects that stay, and each pass over them takes 0.1 s.
    gc.disable()
    from kubechronicle.ops.data_dir import reported
    from kubechronicle.ops.settings.command_line import load_settings

    settings = load_settings(arguments)
    import trio

    if settings.ephemeral:
        from kubechronicle.ops.ephemeral.server import serve
    else:
        from kubechronicle.ops.server.serve import serve

    with reported(settings.data_dir):
        trio.run(serve, settings)
    return OK


def _run_async(command: Callable[[Settings], Coroutine[Any, Any, int]], arguments: argparse.Namespace) -> int:
    import trio

    from kubechronicle.ops.data_dir import reported
    from kubechronicle.ops.settings.command_line import load_settings

    settings = load_settings(arguments)
    with reported(settings.data_dir):
        return trio.run(command, settings)


def _migrate(arguments: argparse.Namespace) -> int:
    from kubechronicle.ops.maintenance import log_commands

    return _run_async(log_commands.run_migrate, arguments)


def _verify(arguments: argparse.Namespace) -> int:
    from kubechronicle.ops.maintenance import log_commands

    if arguments.backup:
        return _verify_backup(arguments)
    anchors, checkpoints = log_commands.parse_anchors(arguments.anchor), arguments.checkpoint
    key, archive, witness = _path(arguments.key), _path(arguments.archive), _witness_flags(arguments)
    return _run_async(
        lambda settings: log_commands.run_verify(
            settings, anchors=anchors, checkpoints=checkpoints, key_file=key, archive=archive, witness=witness
        ),
        arguments,
    )


def _verify_backup(arguments: argparse.Namespace) -> int:
    from kubechronicle.ops.maintenance import backups, log_commands

    if arguments.archive:
        raise OperatorError("--backup: not together with --archive")
    anchors, key = log_commands.parse_anchors(arguments.anchor), _path(arguments.key)
    witness = _witness_flags(arguments)
    return _run_async(
        lambda settings: backups.run_verify(
            settings,
            Path(arguments.backup),
            anchors=anchors,
            checkpoints=arguments.checkpoint,
            key_file=key,
            witness=witness,
        ),
        arguments,
    )


def _witness_flags(arguments: argparse.Namespace) -> WitnessFlags:
    """Return the flags about witnesses. OperatorError."""
    from kubechronicle.ops.maintenance.log_commands import parse_seconds
    from kubechronicle.ops.maintenance.witness import WitnessFlags

    files, tokens = arguments.witness_certificates, _path(arguments.witness_tokens)
    within = parse_seconds("witnessed-within", arguments.witnessed_within)
    if not files and (tokens is not None or within is not None):
        raise OperatorError(
            "--witness-tokens, --witnessed-within: name the certificates of the services with --witness"
        )
    return WitnessFlags(certificates=[Path(file) for file in files], tokens=tokens, within=within)


def _witness(arguments: argparse.Namespace) -> int:
    from kubechronicle.ops.maintenance import witness

    output = _path(arguments.output)
    return _run_async(lambda settings: witness.run_witness(settings, output=output), arguments)


def _backup(arguments: argparse.Namespace) -> int:
    from kubechronicle.ops.maintenance import backups

    return _run_async(lambda settings: backups.run_backup(settings, arguments), arguments)


def _restore_backup(arguments: argparse.Namespace) -> int:
    from kubechronicle.ops.maintenance import backups

    return _run_async(lambda settings: backups.run_restore(settings, arguments), arguments)


def _bump_revisions(arguments: argparse.Namespace) -> int:
    from kubechronicle.ops.maintenance import backups

    return _run_async(lambda settings: backups.run_bump(settings, arguments), arguments)


def _import(arguments: argparse.Namespace) -> int:
    from kubechronicle.ops.migration import command

    return _run_async(lambda settings: command.run(settings, arguments), arguments)


def _checkpoint(arguments: argparse.Namespace) -> int:
    from kubechronicle.ops.maintenance import checkpoints

    key, output = _path(arguments.key), _path(arguments.output)
    return _run_async(lambda settings: checkpoints.run_checkpoint(settings, key_file=key, output=output), arguments)


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def _compact(arguments: argparse.Namespace) -> int:
    from getpass import getuser

    from kubechronicle.ops.maintenance import log_commands

    revision = log_commands.parse_revision(arguments.revision)
    keep = log_commands.parse_seconds("keep", arguments.keep)
    without = bool(arguments.without_archive)
    return _run_async(
        lambda settings: log_commands.run_compact(
            settings,
            revision=revision,
            keep=keep,
            without_archive=without,
            by=getuser(),
            reason=arguments.reason,
        ),
        arguments,
    )


def _kubeconfig(arguments: argparse.Namespace) -> int:
    from kubechronicle.ops.maintenance import kubeconfigs
    from kubechronicle.ops.settings.command_line import load_settings

    kubeconfigs.run(arguments, load_settings(arguments).data_dir)
    return OK


def _move_resources(arguments: argparse.Namespace) -> int:
    from kubechronicle.ops.maintenance import move_resources

    return _run_async(lambda settings: move_resources.run(settings, arguments), arguments)


def _convert(arguments: argparse.Namespace) -> int:
    from kubechronicle.ops.maintenance import convert

    return convert.run(arguments.source, arguments.target, arguments.output_version)


def _archive(arguments: argparse.Namespace) -> int:
    from kubechronicle.ops.maintenance import archive

    if arguments.action == "parquet":
        from kubechronicle.ops.maintenance import parquet

        return _run_async(lambda settings: parquet.run(settings, arguments), arguments)
    return archive.run(arguments)


def _history(arguments: argparse.Namespace) -> int:
    if arguments.action == "status":
        from kubechronicle.ops.maintenance import history_status

        as_json = arguments.output == "json"
        return _run_async(lambda settings: history_status.run(settings, as_json=as_json), arguments)
    from kubechronicle.ops.maintenance import confidential

    return _run_async(
        lambda settings: confidential.run(settings, add=arguments.add, remove=arguments.remove), arguments
    )


def _erase(arguments: argparse.Namespace) -> int:
    from kubechronicle.ops.maintenance import erase

    return _run_async(lambda settings: erase.run(settings, arguments), arguments)


def _hold(arguments: argparse.Namespace) -> int:
    from kubechronicle.ops.maintenance import hold

    return _run_async(lambda settings: hold.run(settings, arguments), arguments)


def _repair(arguments: argparse.Namespace) -> int:
    from kubechronicle.ops.maintenance import repair

    return _run_async(lambda settings: repair.run(settings, arguments), arguments)


def _up(arguments: argparse.Namespace) -> int:
    import trio

    from kubechronicle.ops.cluster import up

    trio.run(up.run, arguments)
    return OK


def _envtest(arguments: argparse.Namespace) -> int:
    from kubechronicle.ops.testing import envtest

    return envtest.run(arguments)


def _version(arguments: argparse.Namespace) -> int:
    from kubechronicle.api.kinds import SERVED
    from kubechronicle.ops.version import version_line

    terminal.stdout().line(version_line(f"v{SERVED}"))
    return OK


COMMANDS: dict[str, OperatorCommand] = {
    "serve": OperatorCommand("Run the API server.", _serve_flags, _serve),
    "up": OperatorCommand("Run a whole cluster on this machine, with simulated nodes.", cluster_flags.add_flags, _up),
    "envtest": OperatorCommand(
        "Make the folder of programs that controller-runtime's envtest starts.", flags.envtest_flags, _envtest
    ),
    "migrate": OperatorCommand("Bring the database schema up to date.", flags.database_flags, _migrate),
    "verify": OperatorCommand("Prove that history was not edited.", flags.verify_flags, _verify),
    "checkpoint": OperatorCommand(
        "Sign the present state of the log, for verify to compare with later.", flags.checkpoint_flags, _checkpoint
    ),
    "witness": OperatorCommand(
        "Let time-stamping services sign the present state of the log, for verify --witness.",
        flags.witness_flags,
        _witness,
    ),
    "backup": OperatorCommand("Write the whole log to a file, beside running servers.", flags.backup_flags, _backup),
    "restore-backup": OperatorCommand(
        "Restore a backup into an empty database, whole or as of a moment.", flags.restore_flags, _restore_backup
    ),
    "bump-revisions": OperatorCommand(
        "Let a log that was restored by Postgres' means go on at a higher revision, with all servers stopped.",
        flags.bump_flags,
        _bump_revisions,
    ),
    "compact": OperatorCommand("Forget old history; objects that exist are kept.", flags.compact_flags, _compact),
    "import": OperatorCommand(
        "Move in: copy a cluster from its API server, or from an etcd snapshot.", flags.import_flags, _import
    ),
    "move-resources": OperatorCommand(
        "Move Events or Leases to the database of an override, or back.", flags.move_flags, _move_resources
    ),
    "kubeconfig": OperatorCommand(
        "Print a kubeconfig: for a user, or for a moment of history.", flags.kubeconfig_flags, _kubeconfig
    ),
    "history": OperatorCommand(
        "Show the size of history, and its confidential resources.", flags.history_flags, _history
    ),
    "archive": OperatorCommand("Read history that was archived before it was dropped.", flags.archive_flags, _archive),
    "erase": OperatorCommand(
        "Erase an object's contents, or a user's identity, from history; verify still proves the rest.",
        flags.erase_flags,
        _erase,
    ),
    "hold": OperatorCommand("Keep history from retention and erasure, as a court may order.", flags.hold_flags, _hold),
    "repair": OperatorCommand(
        "Disable webhooks and policies, or change bindings of roles, beside an API that refuses it.",
        flags.repair_flags,
        _repair,
    ),
    "convert": OperatorCommand(
        "Convert objects between JSON, YAML and protobuf, and between versions.", flags.convert_flags, _convert
    ),
    "version": OperatorCommand("Print the version.", flags.no_flags, _version),
}
