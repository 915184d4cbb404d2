"""The start of every command: connect to the server, and find the object the command is about.

Several objects in one command: TYPE/NAME TYPE/NAME, TYPE NAME NAME, TYPE,TYPE, or TYPE with a label selector.

The source of the history that a command asks: the server of the kubeconfig, or archives (--archive).

Archives are answered by a server of their own (`serve --ephemeral --ephemeral-archive`), which this module starts for
one command. So a command asks the same questions of both, and its answers name the archive and its range.

Kinds of custom resources whose definitions were deleted. History still has their objects.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kubechronicle.api.values.objects import ReadOnlyObject
from kubechronicle.ops import terminal
from kubechronicle.ops.client import kubeconfig
from kubechronicle.ops.client.client import ApiError, Client
from kubechronicle.ops.client.kinds import Kind, Kinds
from kubechronicle.ops.client.output import Screen
from kubechronicle.ops.client.revision_reader import API, RevisionQuery, Scope, read_revisions, scopes_of
from kubechronicle.ops.client.subjects import HOW_TO_NAME, Subject, checked_reason, split_words
from kubechronicle.ops.client.transport import HttpTransport, Transport
from kubechronicle.ops.errors import OperatorError

DEFINITIONS: Final = "customresourcedefinitions.apiextensions.k8s.io"
MOST: Final = 500
"""Deletions that are read, newest first."""


def past_kinds(client: Client) -> Kinds:
    """Return the kinds of the deleted definitions, the last deleted one first. None if the user may not read them."""
    fields = (("object.resource", DEFINITIONS), ("operation", "Delete"))
    query = RevisionQuery([Scope(f"{API}/clusterrevisions", fields, optional=True)], limit=MOST)
    last = (revision.get("before") for revision in read_revisions(client, query))  # none if it was erased
    return Kinds([_past_kind(definition["spec"]) for definition in last if definition is not None])


def _past_kind(spec: ReadOnlyObject) -> Kind:
    names = spec["names"]
    served = [version["name"] for version in spec["versions"] if version["served"]]
    return Kind(
        spec["group"],
        served[0] if served else spec["versions"][0]["name"],
        names["plural"],
        names.get("singular") or "",
        names["kind"],
        spec["scope"] == "Namespaced",
        frozenset(("get", "list")),
        tuple(names.get("shortNames") or ()),
        tuple(names.get("categories") or ()),
    )


SERVER: Final = ("-P", "-m", "kubechronicle.ops.cli", "serve", "--ephemeral", "--secure-port=0")
HELD: Final = re.compile(r"archive (.+)")
READY: Final = re.compile(r"kubechronicle is ready at \S+; try: kubectl --kubeconfig (\S+) ")
STOPPING: Final = 40.0  # seconds
PR_SET_PDEATHSIG: Final = 1
"""Linux: the signal that a process gets when its parent dies."""


def add_source_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the server and the user, and --archive, to a command that only asks."""
    kubeconfig.add_flags(parser)
    parser.add_argument(
        "--archive",
        metavar="PATH[@N-M]",
        default="",
        help="ask the archives in this directory, or this Parquet file, instead of a server; @N-M: these revisions",
    )


def target_of(arguments: argparse.Namespace) -> kubeconfig.ClusterTarget:
    """Return the source that the arguments name; an archive's server runs until ``close``. OperatorError."""
    given = getattr(arguments, "archive", "")
    if not given:
        return kubeconfig.load(arguments)
    if arguments.kubeconfig or arguments.server or arguments.context:
        raise OperatorError("--archive and a server exclude each other")
    if getattr(arguments, "archive_server", None) is None:
        arguments.archive_server = _ArchiveServer(given)
    server: _ArchiveServer = arguments.archive_server
    arguments.kubeconfig = str(server.kubeconfig)
    target = kubeconfig.load(arguments)
    target.source = f"in the archive {server.held}"
    return target


def close(arguments: argparse.Namespace) -> None:
    """End the server of an archive."""
    server = getattr(arguments, "archive_server", None)
    if server is not None:
        server.close()


class _ArchiveServer:
    """A server on archives. ``held``: what they have. ``kubeconfig``: of its administrator."""

    def __init__(self, given: str) -> None:
        """Start the server, wait until it is ready, and print what the archives have. OperatorError."""
        import subprocess  # few commands ask an archive, and all start with this module

        path, _, bounds = given.partition("@")
        absolute = str(Path(path).expanduser().absolute()) + (f"@{bounds}" if bounds else "")
        self._process = subprocess.Popen(
            [sys.executable, *SERVER, f"--ephemeral-archive={absolute}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,
        )
        assert self._process.stdout is not None
        self.held = ""
        for line in self._process.stdout:
            if found := HELD.match(line):
                self.held = found[1]
            elif ready := READY.search(line):
                self.kubeconfig = Path(ready[1]).absolute()
                terminal.stderr().line(f"asking the archive {self.held}")
                return
        _, problem = self._process.communicate(timeout=STOPPING)
        last = problem.strip().rpartition("\n")[2].removeprefix("kubechronicle: ")
        raise OperatorError(last.replace("--ephemeral-archive", "--archive") or "the archive cannot be served")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(STOPPING)


def _die_with_parent() -> None:
    import ctypes
    import signal

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


# -- other servers -----------------------------------------------------------------------------------------------------
#
# Kinds of extension API servers: the server's log holds no change of their objects (docs/aggregation.md).


API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


def other_server(client: Client, kind: Kind) -> str:
    """Return "namespace/name" of the Service behind which a kind is served; "" if it is the server's own.

    A user who may not read APIServices gets "".
    """
    if "." not in kind.group:
        return ""  # only groups of the server itself have such names
    try:
        found = client.get(f"{API_SERVICES}/{kind.version}.{kind.group}")
    except ApiError:
        return ""
    service = (found.get("spec") or {}).get("service")
    return f"{service.get('namespace', '')}/{service.get('name', '')}" if service else ""


def remark(kind: Kind, service: str) -> str:
    """Return what to tell about such a kind."""
    return (
        f"{kind.full_name} are served by another server, behind the Service {service}: this server's log holds none of "
        "their changes"
    )


make_transport: Callable[[kubeconfig.ClusterTarget], Transport] = HttpTransport
"""Tests replace it."""


def connect(target: kubeconfig.ClusterTarget) -> Client:
    return Client(make_transport(target), target.namespace, source=target.source)


class Session(NamedTuple):
    """One run of a command."""

    arguments: argparse.Namespace
    client: Client
    screen: Screen

    @classmethod
    def open(cls, arguments: argparse.Namespace) -> Session:
        """Connect to the server that the arguments and the kubeconfig name. OperatorError."""
        client = connect(target_of(arguments)).replaced(
            shows_secrets=bool(getattr(arguments, "show_secrets", False)),
            reason=checked_reason(getattr(arguments, "reason_to_give", "")),
        )
        return cls(arguments, client, Screen(arguments))

    @property
    def namespace(self) -> str:
        return self.client.namespace

    def kinds(self) -> Kinds:
        return Kinds.discover(self.client)

    def subject(
        self, words: Sequence[str], kinds: Kinds, *, name_required: bool = True, served: bool = False
    ) -> Subject:
        """Return the object or kind that ``words`` name. ``served``: not a kind of the past. OperatorError.

        Tell the user if it is a kind of an extension API server.
        """
        type_name, name = split_words(words)
        kind = self._kind(type_name, kinds, served=served)
        if service := other_server(self.client, kind):
            self.screen.note(remark(kind, service))
        if name_required and not name:
            raise OperatorError(f"which {kind.singular or kind.plural}? {HOW_TO_NAME}")
        everywhere = getattr(self.arguments, "all_namespaces", False)
        return Subject(kind, self.namespace if kind.namespaced and not everywhere else "", name)

    def _kind(self, type_name: str, kinds: Kinds, *, served: bool) -> Kind:
        """Return a kind of the server, or else one whose definition was deleted. OperatorError."""
        try:
            return kinds.find(type_name)
        except OperatorError as unknown:
            try:
                past = past_kinds(self.client).find(type_name)
            except OperatorError:
                raise unknown from None
        if served:
            restoring = f"kubectl chronicle restore crd/{past.full_name}"
            raise OperatorError(f"the definition of {past.full_name} was deleted; restore it first: {restoring} --to …")
        return past


def add_selector_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-l", "--selector", metavar="LABELS", default="", help="objects with these labels at the change, as app=web"
    )


def split_objects(words: Sequence[str]) -> list[Sequence[str]]:
    """Return the words of each object: TYPE/NAME, or TYPE and NAME; or of each kind in TYPE,TYPE."""
    if len(words) == 1 and "," in words[0] and "/" not in words[0]:
        return [[kind] for kind in words[0].split(",") if kind]
    if len(words) > 1 and all("/" in word for word in words):
        return [[word] for word in words]
    if len(words) > 2 and not any("/" in word for word in words):
        return [[words[0], name] for name in words[1:]]
    return [words]


def subjects(session: Session, words: Sequence[str], kinds: Kinds, *, selector: str = "") -> list[Subject]:
    """Return the objects that the words name, each once. OperatorError.

    ``selector``: labels instead of names. Objects of the past count too.
    """
    if not selector:
        named = [session.subject(each, kinds) for each in split_objects(words)]
        return list(dict.fromkeys(named))
    kind = session.subject(words, kinds, name_required=False)
    if kind.name:
        raise OperatorError("a name and --selector exclude each other")
    query = RevisionQuery(scopes_of(kind), content="", labels=selector)
    found: dict[Subject, None] = {}
    for revision in read_revisions(session.client, query):
        reference = revision["object"]
        found[kind._replace(namespace=reference.get("namespace", ""), name=reference["name"])] = None
    if not found:
        raise OperatorError(f"no {kind.description} had the labels {selector} in the history")
    return list(found)
