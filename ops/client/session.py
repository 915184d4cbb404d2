"""The start of every command: connect to the server, and find the object the command is about."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kubechronicle.ops.client import kubeconfig
from kubechronicle.ops.client.client import ApiError, Client
from kubechronicle.ops.client.kinds import Kind, Kinds
from kubechronicle.ops.client.output import Screen
from kubechronicle.ops.client.past_kinds import past_kinds
from kubechronicle.ops.client.sources import target_of
from kubechronicle.ops.client.subjects import HOW_TO_NAME, Subject, checked_reason, split_words
from kubechronicle.ops.client.transport import HttpTransport, Transport
from kubechronicle.ops.errors import OperatorError

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
