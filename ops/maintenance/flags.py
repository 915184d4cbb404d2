"""The flags of the commands beside `serve`. This module imports little, because `kubechronicle --help` needs it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

DATABASE = ("database-url", "database-direct-url", "data-dir", "v")
"""The settings of every command that works on the database."""
# Flags of `archive read`, and the columns that they select by.
ARCHIVE_FILTERS = {
    "resource": "resource",
    "namespace": "namespace",
    "name": "name",
    "uid": "uid",
    "user": "user_name",
    "verb": "verb",
    "user-agent": "user_agent",
    "field-manager": "field_manager",
    "source-address": "source_address",
}


def add_settings(parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
    """Add the flags of these settings. Only commands with settings import their tables."""
    from kubechronicle.ops.settings import command_line

    command_line.add_settings(parser, names)


def database_flags(parser: argparse.ArgumentParser) -> None:
    add_settings(parser, DATABASE)


def no_flags(parser: argparse.ArgumentParser) -> None:
    """Add nothing."""


def verify_flags(parser: argparse.ArgumentParser) -> None:
    add_settings(parser, (*DATABASE, "encryption-provider-config"))
    parser.add_argument(
        "--anchor",
        metavar="REVISION:HASH",
        action="append",
        default=[],
        help="an anchor that an earlier verify printed: prove that no revision up to it was rewritten since; may be "
        "repeated",
    )
    parser.add_argument(
        "--checkpoint",
        metavar="FILE",
        action="append",
        default=[],
        help="a checkpoint that `kubechronicle checkpoint` signed: prove the same; may be repeated",
    )
    parser.add_argument(
        "--archive",
        metavar="DIR",
        help="the directory of --history-archive: prove that its archives hold the original changes",
    )
    parser.add_argument(
        "--key",
        metavar="FILE",
        help="the key of the checkpoints, public or private; by default DATA_DIR/pki/checkpoint.key",
    )
    parser.add_argument(
        "--witness",
        metavar="FILE",
        dest="witness_certificates",
        action="append",
        default=[],
        help="certificates (PEM) of the authorities of time-stamping services: prove by the tokens in the log, and by "
        "no key of this server, that nothing before them was rewritten; may be repeated",
    )
    parser.add_argument(
        "--witness-tokens",
        metavar="DIR",
        help="tokens that `kubechronicle witness -o DIR` wrote: prove by them, too, as nobody with access to the "
        "database can remove them",
    )
    parser.add_argument(
        "--witnessed-within", metavar="DURATION", help="fail if the newest token is older than this, such as 2h"
    )
    parser.add_argument(
        "--backup", metavar="FILE", help="prove this backup instead of the database, which is not needed"
    )


def checkpoint_flags(parser: argparse.ArgumentParser) -> None:
    add_settings(parser, DATABASE)
    parser.add_argument(
        "--key",
        metavar="FILE",
        help="a private Ed25519 key (PEM) to sign with; by default DATA_DIR/pki/checkpoint.key, made if missing",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="the file to write; by default standard output")


def witness_flags(parser: argparse.ArgumentParser) -> None:
    add_settings(parser, (*DATABASE, "witness"))
    parser.add_argument("-o", "--output", metavar="DIR", help="a directory for copies of the tokens; made if missing")


def backup_flags(parser: argparse.ArgumentParser) -> None:
    add_settings(parser, DATABASE)
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the file to write, e.g. log.backup.gz")


def restore_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a file that `kubechronicle backup` wrote")
    add_settings(parser, DATABASE)
    moment = parser.add_mutually_exclusive_group()
    moment.add_argument("--to-revision", metavar="N", default="", help="restore the state as of this revision")
    moment.add_argument("--to-time", metavar="TIME", default="", help="restore the state as of this time (RFC 3339)")
    parser.add_argument(
        "--bump-revisions",
        metavar="N",
        nargs="?",
        const="1000000000",
        help="let the log go on N revisions higher (by default a thousand million), and answer watches from lost "
        "revisions with 410 Expired, so that clients start anew",
    )


def bump_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "by", metavar="N", nargs="?", help="the number of revisions to pass over (by default a thousand million)"
    )
    add_settings(parser, DATABASE)


def import_flags(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--from-etcd", metavar="FILE", default="", help="a snapshot of etcd, or its member/snap/db")
    source.add_argument(
        "--from-kubeconfig", metavar="FILE", default="", help="the kubeconfig of a user who may read everything there"
    )
    parser.add_argument("--context", metavar="NAME", default="", help="the context, instead of the current one")
    parser.add_argument(
        "--etcd-prefix", metavar="PREFIX", default="/registry", help="kube-apiserver's flag of this name (/registry)"
    )
    parser.add_argument(
        "--verify", action="store_true", help="import nothing: compare the source with what was imported from it"
    )
    parser.add_argument(
        "--restart", action="store_true", help="forget an unfinished import from a cluster, and begin again"
    )
    parser.add_argument("--report", metavar="FILE", default="", help="write here all that could not be imported")
    add_settings(parser, (*DATABASE, "encryption-provider-config"))


def compact_flags(parser: argparse.ArgumentParser) -> None:
    add_settings(parser, (*DATABASE, "history-archive"))
    limit = parser.add_mutually_exclusive_group(required=True)
    limit.add_argument("--revision", metavar="N", help="forget history below this revision")
    limit.add_argument("--keep", metavar="DURATION", help="forget history older than this, e.g. 720h")
    parser.add_argument(
        "--without-archive",
        action="store_true",
        help="drop history without archiving it, though a server has archived it so far; servers without a directory "
        "do the same from now on",
    )
    parser.add_argument("--reason", metavar="TEXT", default="", help="the reason, which is kept with the move of marks")


def move_flags(parser: argparse.ArgumentParser) -> None:
    add_settings(parser, (*DATABASE, "database-url-overrides"))
    direction = parser.add_mutually_exclusive_group()
    direction.add_argument(
        "--back", action="store_true", help="move the resources of these overrides back to the main database"
    )
    direction.add_argument(
        "--lost",
        metavar="GROUP/RESOURCE",
        action="append",
        default=[],
        help="give up the objects of this resource, whose database is lost; may be repeated",
    )


def kubeconfig_flags(parser: argparse.ArgumentParser) -> None:
    add_settings(parser, ("data-dir",))
    parser.add_argument("--user", metavar="NAME", default="", help="the user's name; required without --at")
    parser.add_argument("--group", metavar="NAME", action="append", default=[], help="a group; may be repeated")
    parser.add_argument(
        "--at",
        metavar="MOMENT",
        default="",
        help="add a context that shows the cluster at a past moment: a revision, a time, or how long ago (2h)",
    )
    parser.add_argument("--context-name", metavar="NAME", default="", help="its name, by default at-MOMENT")
    parser.add_argument(
        "--moving", action="store_true", help="let `--at 2h` mean two hours before each request, not before now"
    )
    parser.add_argument(
        "--kubeconfig", metavar="FILE", default="", help="add the context to this file instead of printing it"
    )


def convert_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="source",
        metavar="FORMAT",
        default="",
        help="the format of stdin: json, yaml or protobuf; detected by default",
    )
    parser.add_argument(
        "--to",
        dest="target",
        metavar="FORMAT",
        required=True,
        help="the format to write: json, yaml or protobuf",
    )
    parser.add_argument(
        "--output-version",
        metavar="GROUP/VERSION",
        default="",
        help="the API version to convert the objects to",
    )


def archive_flags(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, summary in (("list", "List the archives of a directory."), ("read", "Print archived changes.")):
        command = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        command.add_argument("directory", metavar="DIR", help="the directory given as --history-archive")
        command.add_argument("-o", "--output", choices=("text", "json"), default="text", help="text, or JSON lines")
        if name == "read":
            _selection_flags(command)
    summary = "Write changes to a Parquet file: those of the archives in DIR, or without it those of the log."
    command = commands.add_parser("parquet", help=summary, description=summary, allow_abbrev=False)
    command.add_argument("directory", metavar="DIR", nargs="?", help="the directory given as --history-archive")
    command.add_argument("-o", "--output", metavar="FILE", required=True, help="the file to write")
    _selection_flags(command)
    add_settings(command, DATABASE)


def _selection_flags(command: argparse.ArgumentParser) -> None:
    for flag in ARCHIVE_FILTERS:
        command.add_argument(f"--{flag}", metavar="VALUE", help="only changes with this value")
    command.add_argument("--since", metavar="TIME", help="only changes from this time on (RFC 3339)")
    command.add_argument("--until", metavar="TIME", help="only changes up to this time")
    command.add_argument("--revisions", metavar="N-M", help="only these revisions; N- for all from N on")


def history_flags(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    summary = "Show the size of history, its growth, and when it is dropped."
    status = commands.add_parser("status", help=summary, description=summary, allow_abbrev=False)
    status.add_argument("-o", "--output", choices=("text", "json"), default="text", help="text (default) or json")
    add_settings(status, ("history-retention", "history-retention-file", *DATABASE))
    summary = "List, or change, the resources whose contents SQL never shows."
    confidential = commands.add_parser("confidential", help=summary, description=summary, allow_abbrev=False)
    flags = (("--add", "a resource to withhold, e.g. vaults.example.com"), ("--remove", "a resource to show again"))
    for flag, description in flags:
        text = f"{description}; may be repeated"
        confidential.add_argument(flag, metavar="RESOURCE", action="append", default=[], help=text)
    add_settings(confidential, DATABASE)


def erase_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "object", metavar="TYPE/NAME", nargs="?", default="", help="the object; its contents are erased from all times"
    )
    parser.add_argument("-n", "--namespace", metavar="NAME", default="", help="the object's namespace")
    parser.add_argument(
        "--uid", metavar="UID", default="", help="only the object with this uid, not others with the same name"
    )
    parser.add_argument(
        "--user",
        metavar="NAME",
        default="",
        help="instead of an object: erase this user's identity from all requests; the changed objects stay",
    )
    parser.add_argument(
        "--anonymize-name",
        action="store_true",
        help="replace the name too, by erased-… in all of history; the object must be deleted",
    )
    parser.add_argument(
        "--before", metavar="MOMENT", default="", help="only before a revision, a time, or how long ago (90d)"
    )
    parser.add_argument("--revisions", metavar="N-M", default="", help="only these revisions; N- for all from N on")
    parser.add_argument(
        "--reason", metavar="TEXT", required=True, help="the reason; it is kept, so it should not name the person"
    )
    parser.add_argument(
        "--as", metavar="TEXT", default="", dest="by", help="your name or role, which is kept; by default your login"
    )
    parser.add_argument("--dry-run", action="store_true", help="only show what would be erased")
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    add_settings(parser, (*DATABASE, "history-archive"))


def hold_flags(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, summary in {
        "create": "Begin a hold: neither retention nor erasure takes what it covers.",
        "list": "List the holds in force.",
        "release": "End a hold.",
    }.items():
        command = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        if name != "list":
            command.add_argument("name", metavar="NAME", help="the name of the hold")
            command.add_argument("--reason", metavar="TEXT", required=True, help="the reason, which the log keeps")
        if name == "create":
            command.add_argument(
                "--resource",
                metavar="TYPE",
                default="",
                help="pods, deployments.apps, or * for all, as --selector alone has it: the history of the whole "
                "resource is kept while the hold is in force, so that of * stops retention",
            )
            command.add_argument(
                "-l",
                "--selector",
                metavar="SELECTOR",
                help="only objects, with all of their history, of which a revision ever matches, now or later: labels "
                "as for kubectl, app=web or 'tier in (a,b),!test'",
            )
            command.add_argument("-n", "--namespace", metavar="NAME", default="", help="only objects in this namespace")
            command.add_argument("--name", metavar="NAME", default="", dest="object_name", help="only this object")
        add_settings(command, DATABASE)


def repair_flags(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions = {
        "list": "List webhook configurations, policies and bindings of roles.",
        "disable": "Take the webhooks out of a configuration, or delete the bindings of a policy.",
        "unbind": "Take a subject out of a binding of a role, or delete the binding.",
        "grant": "Make a user or a group cluster-admin.",
        "undo": "Write the state before a change of one of these objects.",
    }
    settings = (*DATABASE, "encryption-provider-config")
    for name, summary in actions.items():
        command = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        if name == "list":
            command.add_argument("--deleted", action="store_true", help="instead, those deleted, with how to undo it")
            add_settings(command, settings)
            continue
        if name == "undo":
            command.add_argument("revision", metavar="REVISION", type=int, help="the revision of the change")
        elif name != "grant":
            command.add_argument("object", metavar="TYPE/NAME", help="as `kubechronicle repair list` prints it")
        if name in ("unbind", "grant"):
            command.add_argument("--user", metavar="NAME", default="", help="a user")
            command.add_argument("--group", metavar="NAME", default="", help="a group")
        if name == "unbind":
            command.add_argument("--serviceaccount", metavar="NAMESPACE/NAME", default="", help="a service account")
            command.add_argument("-n", "--namespace", metavar="NAME", default="", help="the namespace of a RoleBinding")
        command.add_argument("--reason", metavar="TEXT", default="", help="the reason, which the log keeps")
        command.add_argument("--dry-run", action="store_true", help="only show what would be changed")
        add_settings(command, settings)


def envtest_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--print-path", action="store_true", help="print the path alone, as setup-envtest's -p path")
    parser.add_argument(
        "--print-go-module", action="store_true", help="print the path of the Go module that starts a server for tests"
    )
    parser.add_argument("--dir", metavar="DIR", default="", help="make the folder here, not in the user's cache")
