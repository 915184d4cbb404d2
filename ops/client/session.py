"""What every command begins with: its flags, whom it asks, and which object it is about."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kubechronicle.api.history.field_values import canonical
from kubechronicle.ops.client import kubeconfig
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.kinds import Kind, Kinds
from kubechronicle.ops.client.output import Screen
from kubechronicle.ops.client.transport import Transport, Wire
from kubechronicle.ops.errors import OperatorError

# How a transport is made of what was given; tests put another here.
Connect = Callable[[kubeconfig.Target], Transport]
CONNECT: list[Connect] = [Wire]

HOW: Final = "name it as TYPE/NAME or TYPE NAME, as in deployment/web"


@dataclass(frozen=True, slots=True)
class Session:
    given: argparse.Namespace
    client: Client
    screen: Screen
    target: kubeconfig.Target

    @classmethod
    def of(cls, given: argparse.Namespace) -> Session:
        """OperatorError."""
        target = kubeconfig.load(given)
        return cls(given, Client(CONNECT[-1](target), target.namespace), Screen(given), target)

    @property
    def namespace(self) -> str:
        return self.client.namespace

    def kinds(self) -> Kinds:
        return Kinds.of(self.client)


@dataclass(frozen=True, slots=True)
class Subject:
    """What is asked about: an object, or all of a kind (``name`` ""). ``namespace``: "" for cluster-scoped objects, and
    for all namespaces."""

    kind: Kind
    namespace: str
    name: str = ""

    def __str__(self) -> str:
        return self.kind.titled(self.name) if self.name else self.kind.full

    @property
    def told(self) -> str:
        """With its namespace."""
        return f"{self}" + (f" in namespace {self.namespace}" if self.namespace else "")

    def path(self) -> str:
        return self.kind.path(self.namespace, self.name)


def split(words: Sequence[str]) -> tuple[str, str]:
    """The type and the name ("" if there is none) of TYPE/NAME, TYPE NAME or TYPE. OperatorError."""
    if len(words) == 1 and "/" in words[0]:
        type_, _, name = words[0].partition("/")
        if type_ and name and "/" not in name:
            return type_, name
    elif len(words) in (1, 2) and not any("/" in word for word in words):
        return words[0], words[1] if len(words) == 2 else ""
    raise OperatorError(f"{' '.join(words)!r} is no object; {HOW}")


def subject(session: Session, words: Sequence[str], kinds: Kinds, *, named: bool = True) -> Subject:
    """OperatorError. ``named``: whether it must be one object."""
    type_, name = split(words)
    kind = kinds.named(type_)
    if named and not name:
        raise OperatorError(f"which {kind.singular or kind.plural}? {HOW}")
    everywhere = getattr(session.given, "all_namespaces", False)
    return Subject(kind, session.namespace if kind.namespaced and not everywhere else "", name)


def field_path(text: str) -> str:
    """A path as history writes it. OperatorError."""
    try:
        return canonical(text)
    except ValueError as error:
        raise OperatorError(str(error)) from None


def add_subject(parser: argparse.ArgumentParser, *, needed: bool = True) -> None:
    parser.add_argument("what", metavar="TYPE/NAME", nargs="+" if needed else "*", help="also TYPE NAME")


def add_all_namespaces(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="the whole cluster")


# A moment that was given as -2h is the same without its sign, which argparse would take for a flag's.
_AGO = re.compile(r"-([0-9]+[0-9.a-zµ]*[a-zµ])")


def unsigned(argument: str) -> str:
    match = _AGO.fullmatch(argument)
    return match[1] if match else argument
