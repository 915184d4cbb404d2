"""The command line: `kubechronicle serve | migrate | verify | compact | kubeconfig | convert | version`, and the
questions of ops/chronicle (`log`, `who`, `restore`, …), which kubectl knows as `kubectl chronicle …`.

Exit codes: 0 done (or stopped by a signal as asked), 1 it failed or verify found edited history, 2 the operator can
mend it, with one line on stderr that says how. Flags come from the table in settings.py.

Each command imports what it needs when it runs: a quick one is not to wait for what another needs.
"""

from __future__ import annotations

import argparse
import gc
import logging
import re
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, NoReturn

from kubechronicle.actors.errors import SupervisorGaveUp
from kubechronicle.eventlog.errors import LogError, LogUnavailable, SetupError
from kubechronicle.ops import logging as klog
from kubechronicle.ops.client.command_table import QUESTIONS, program
from kubechronicle.ops.errors import OperatorError, WorkerFailed
from kubechronicle.ops.settings import settings, types

log = logging.getLogger(__name__)

OK, FAILED, MISTAKE = 0, 1, 2
MAINTENANCE_FLAGS = ("database-url", "data-dir", "v")
# What the operator can mend, or has to wait for; told in one line.
EXPECTED = (OperatorError, SetupError, LogUnavailable)


class _Parser(argparse.ArgumentParser):
    """Raises instead of printing its usage and exiting."""

    def error(self, message: str) -> NoReturn:
        unknown = re.match(r"unrecognized arguments: (\S+)", message)
        if unknown and unknown[1].startswith("-"):
            flag = unknown[1].partition("=")[0]
            raise OperatorError(f"unknown flag {flag}{settings.suggestion(flag)}")
        if "invalid choice" in message or "required: COMMAND" in message:
            names = ", ".join((*COMMANDS, *QUESTIONS))
            raise OperatorError(f"name a command: {names}; `kubechronicle --help` tells what they do")
        raise OperatorError(message)


def make_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=program(),
        allow_abbrev=False,
        description="A Kubernetes API server on an append-only Postgres revision log.",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (summary, add_flags, _) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        add_flags(command)
    for name, summary in QUESTIONS.items():
        commands.add_parser(name, help=summary, add_help=False)  # main leaves these to ops/chronicle
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; never raises but for a bug."""
    try:
        argv = sys.argv[1:] if argv is None else argv
        if argv and argv[0] in QUESTIONS:
            from kubechronicle.ops.client import dispatch as commands

            return commands.run(argv[0], argv[1:])
        given = make_parser().parse_args(_with_dashed_values(argv))
        _, _, run = COMMANDS[given.command]
        return run(given)
    except (*EXPECTED, SupervisorGaveUp, LogError, BaseExceptionGroup) as error:
        return told(error)
    except KeyboardInterrupt:
        return FAILED


def _with_dashed_values(argv: Sequence[str]) -> list[str]:
    """With ``--controllers -NAME`` as ``--controllers=-NAME``, which is the only way argparse takes such a value; and
    ``--at -2h`` likewise."""
    found: list[str] = []
    for argument in argv:
        if found and found[-1] in ("--controllers", "--at") and re.match(r"-[^-]", argument):
            found[-1] += f"={argument}"
        else:
            found.append(argument)
    return found


def told(error: BaseException) -> int:
    """Tell an expected error in one line; anything else is a bug and keeps its traceback."""
    leaves = _leaves(error)
    for leaf in leaves:
        if isinstance(leaf, EXPECTED):
            print(f"kubechronicle: {_one_line(leaf)}", file=sys.stderr)
            return MISTAKE
    for leaf in leaves:
        if isinstance(leaf, WorkerFailed) and leaf.status in (FAILED, MISTAKE):
            return leaf.status  # it has told
        if isinstance(leaf, SupervisorGaveUp | LogError | WorkerFailed):
            log.critical("The server cannot go on", exc_info=error, extra={"err": _one_line(leaf)})
            return FAILED
    raise error


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in _leaves(part)]
    return [error]


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _add_settings(parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
    for name in names:
        flag = settings.BY_NAME[name]
        spellings = ["--v", "-v"] if name == "v" else [f"--{name}"]
        default = f" (default {flag.default})" if flag.default else ""
        alone: dict[str, Any] = {"nargs": "?", "const": "true"} if flag.switch else {}
        parser.add_argument(
            *spellings,
            metavar=flag.placeholder,
            dest=flag.name,
            default=None,
            **alone,
            action="append" if flag.repeatable else "store",
            help=(flag.help + default).replace("%", "%%"),
        )
    parser.add_argument("--config", metavar="FILE", help="a YAML file with any of these settings, without the dashes")


def _load(given: argparse.Namespace) -> settings.Settings:
    values = vars(given)
    flags = {name: values[name] for name in settings.BY_NAME if values.get(name) is not None}
    for name, value in flags.items():
        if isinstance(value, list) and not settings.BY_NAME[name].whole:
            flags[name] = ",".join(value)
    loaded = settings.load(flags, config_file=Path(given.config) if given.config else None)
    klog.set_up(verbosity=loaded.v)
    return loaded


def _serve_flags(parser: argparse.ArgumentParser) -> None:
    _add_settings(parser, list(settings.BY_NAME))


def _serve(given: argparse.Namespace) -> int:
    gc.disable()  # until the server runs (replica.py): a start makes much that stays, to look through it takes 0.1 s
    loaded = _load(given)
    import trio

    from kubechronicle.ops.server.serve import serve

    trio.run(serve, loaded)
    return OK


def _maintenance_flags(parser: argparse.ArgumentParser) -> None:
    _add_settings(parser, MAINTENANCE_FLAGS)


def _verify_flags(parser: argparse.ArgumentParser) -> None:
    _maintenance_flags(parser)
    parser.add_argument(
        "--anchor",
        metavar="REVISION:HASH",
        action="append",
        default=[],
        help="what an earlier verify printed: proves that nothing up to it was rewritten since; may be repeated",
    )
    parser.add_argument(
        "--checkpoint",
        metavar="FILE",
        action="append",
        default=[],
        help="what an earlier `kubechronicle checkpoint` signed: proves the same; may be repeated",
    )
    parser.add_argument(
        "--archive",
        metavar="DIR",
        help="the directory of --history-archive: proves that what is archived is what was appended",
    )
    parser.add_argument(
        "--key",
        metavar="FILE",
        help="the key of the checkpoints, public or private; by default DATA_DIR/pki/checkpoint.key",
    )


def _checkpoint_flags(parser: argparse.ArgumentParser) -> None:
    _maintenance_flags(parser)
    parser.add_argument(
        "--key",
        metavar="FILE",
        help="a private Ed25519 key (PEM) to sign with; by default DATA_DIR/pki/checkpoint.key, made if missing",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write it; by default standard output")


def _compact_flags(parser: argparse.ArgumentParser) -> None:
    _add_settings(parser, (*MAINTENANCE_FLAGS, "history-archive"))
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--revision", metavar="N", help="forget history below this revision")
    which.add_argument("--keep", metavar="DURATION", help="forget history older than this, e.g. 720h")
    parser.add_argument(
        "--without-archive",
        action="store_true",
        help="drop without archiving, though servers were told to archive; from now on those without a directory do so",
    )


def _kubeconfig_flags(parser: argparse.ArgumentParser) -> None:
    _add_settings(parser, ("data-dir",))
    parser.add_argument("--user", metavar="NAME", default="", help="the user's name; needed unless --at is given")
    parser.add_argument("--group", metavar="NAME", action="append", default=[], help="a group; may be repeated")
    parser.add_argument(
        "--at",
        metavar="MOMENT",
        default="",
        help="add a context that shows the cluster as it was: a revision, a time, or how long ago (2h)",
    )
    parser.add_argument("--context-name", metavar="NAME", default="", help="its name, by default at-MOMENT")
    parser.add_argument(
        "--moving", action="store_true", help="let `--at 2h` always mean two hours before each request, not before now"
    )
    parser.add_argument(
        "--kubeconfig", metavar="FILE", default="", help="put the context into this file instead of printing it all"
    )


def _async_command(make: Callable[[settings.Settings], Coroutine[Any, Any, int]], given: argparse.Namespace) -> int:
    import trio

    loaded = _load(given)

    async def run() -> int:
        return await make(loaded)

    return trio.run(run)


def _migrate(given: argparse.Namespace) -> int:
    from kubechronicle.ops.maintenance import log as maintenance

    return _async_command(maintenance.run_migrate, given)


def _verify(given: argparse.Namespace) -> int:
    from kubechronicle.ops.maintenance import log as maintenance

    anchors, files = maintenance.parse_anchors(given.anchor), given.checkpoint
    key, archive = _path(given.key), _path(given.archive)
    return _async_command(
        lambda loaded: maintenance.run_verify(
            loaded, anchors=anchors, checkpoints=files, key_file=key, archive=archive
        ),
        given,
    )


def _checkpoint(given: argparse.Namespace) -> int:
    from kubechronicle.ops.maintenance import checkpoints

    key, output = _path(given.key), _path(given.output)
    return _async_command(lambda loaded: checkpoints.run_checkpoint(loaded, key_file=key, output=output), given)


def _path(given: str | None) -> Path | None:
    return Path(given) if given else None


def _compact(given: argparse.Namespace) -> int:
    from kubechronicle.ops.maintenance import log as maintenance

    converter = types.make_converter()
    try:
        revision = converter.structure(given.revision, types.Count) if given.revision else None
    except ValueError as error:
        raise OperatorError(f"--revision: {error}") from None
    try:
        keep = converter.structure(given.keep, types.Seconds) if given.keep else None
    except ValueError as error:
        raise OperatorError(f"--keep: {error}") from None
    without = bool(given.without_archive)
    return _async_command(
        lambda loaded: maintenance.run_compact(loaded, revision=revision, keep=keep, without_archive=without), given
    )


def _kubeconfig(given: argparse.Namespace) -> int:
    from kubechronicle.ops.maintenance import kubeconfigs

    kubeconfigs.run(given, _load(given).data_dir)
    return OK


def _convert_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="source",
        metavar="FORMAT",
        default="",
        help="what stdin is: json, yaml or protobuf; by default the bytes tell",
    )
    parser.add_argument(
        "--to",
        dest="target",
        metavar="FORMAT",
        required=True,
        help="what to write: json, yaml or protobuf",
    )
    parser.add_argument(
        "--output-version",
        metavar="GROUP/VERSION",
        default="",
        help="the API version to convert the objects to",
    )


def _convert(given: argparse.Namespace) -> int:
    from kubechronicle.ops.maintenance import convert

    return convert.run(given.source, given.target, given.output_version)


def _archive_flags(parser: argparse.ArgumentParser) -> None:
    from kubechronicle.ops.maintenance import archive_flags

    archive_flags.add_commands(parser)


def _archive(given: argparse.Namespace) -> int:
    from kubechronicle.ops.maintenance import archive

    return archive.run(given)


def _history_flags(parser: argparse.ArgumentParser) -> None:
    from kubechronicle.ops.maintenance import history

    history.add_commands(parser, lambda command, names: _add_settings(command, names))


def _history(given: argparse.Namespace) -> int:
    from kubechronicle.ops.maintenance import history

    return _async_command(lambda loaded: history.run(loaded, given), given)


def _erase_flags(parser: argparse.ArgumentParser) -> None:
    from kubechronicle.ops.maintenance import erase_flags

    erase_flags.add_flags(parser)
    _add_settings(parser, (*MAINTENANCE_FLAGS, "history-archive"))


def _erase(given: argparse.Namespace) -> int:
    from kubechronicle.ops.maintenance import erase

    return _async_command(lambda loaded: erase.run(loaded, given), given)


def _version_flags(parser: argparse.ArgumentParser) -> None:
    """None."""


def _version(given: argparse.Namespace) -> int:
    from kubechronicle.api.registry.discovery import KUBERNETES_MAJOR, KUBERNETES_MINOR
    from kubechronicle.ops.version import version_line

    print(version_line(f"v{KUBERNETES_MAJOR}.{KUBERNETES_MINOR}"))
    return OK


Command = tuple[str, Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], int]]
COMMANDS: dict[str, Command] = {
    "serve": ("Run the API server.", _serve_flags, _serve),
    "migrate": ("Bring the database schema up to date.", _maintenance_flags, _migrate),
    "verify": ("Prove that history was not edited.", _verify_flags, _verify),
    "checkpoint": ("Sign what the log says now, for verify to compare with later.", _checkpoint_flags, _checkpoint),
    "compact": ("Forget old history; objects that exist are kept.", _compact_flags, _compact),
    "kubeconfig": ("Print a kubeconfig: for a user, or for a moment of history.", _kubeconfig_flags, _kubeconfig),
    "history": ("Tell how much history there is, and what is confidential in it.", _history_flags, _history),
    "archive": ("Read history that was archived before it was dropped.", _archive_flags, _archive),
    "erase": ("Erase an object's contents, or a user, from history; it stays provable.", _erase_flags, _erase),
    "convert": ("Convert objects between JSON, YAML and protobuf, and between versions.", _convert_flags, _convert),
    "version": ("Print the version.", _version_flags, _version),
}

if __name__ == "__main__":
    sys.exit(main())
