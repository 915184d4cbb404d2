"""The arguments that name an object, a field or a moment, and their flags."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from kubechronicle.api.history.cells import HIDDEN, NOISE
from kubechronicle.api.history.differences import canonical
from kubechronicle.api.history.reasons import parse_reason
from kubechronicle.ops.client.kinds import Kind
from kubechronicle.ops.errors import OperatorError

HOW_TO_NAME: Final = "name it as TYPE/NAME or TYPE NAME, as in deployment/web"


class Subject(NamedTuple):
    """The object a command is about, or all objects of a kind.

    ``namespace``: "" for cluster-scoped objects and for all namespaces
    ``name``: "" for all objects
    """

    kind: Kind
    namespace: str
    name: str = ""

    def __str__(self) -> str:
        return self.kind.object_name(self.name) if self.name else self.kind.full_name

    @property
    def description(self) -> str:
        """The name with the namespace: ``configmap/settings in namespace shop``."""
        return f"{self}" + (f" in namespace {self.namespace}" if self.namespace else "")

    def path(self) -> str:
        return self.kind.path(self.namespace, self.name)


def split_words(words: Sequence[str]) -> tuple[str, str]:
    """Split TYPE/NAME, TYPE NAME or TYPE into type and name ("" without one). OperatorError."""
    if len(words) == 1 and "/" in words[0]:
        type_name, _, name = words[0].partition("/")
        if type_name and name and "/" not in name:
            return type_name, name
    elif len(words) in (1, 2) and not any("/" in word for word in words):
        return words[0], words[1] if len(words) == 2 else ""
    raise OperatorError(f"{' '.join(words)!r} is not an object; {HOW_TO_NAME}")


def field_path(text: str) -> str:
    """Return a field's path as history writes it. OperatorError."""
    try:
        return canonical(text)
    except ValueError as error:
        raise OperatorError(str(error)) from None


def add_subject_flags(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    parser.add_argument("words", metavar="TYPE/NAME", nargs="+" if required else "*", help="or TYPE NAME")


def add_all_namespaces_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="the whole cluster")


def add_noise_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--noise", action="store_true", help="list Events, Leases and other heartbeats, too")


def noise_of(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the field selector that leaves out noise, unless --noise is set."""
    return {} if arguments.noise else {NOISE: HIDDEN}


def add_flags_of_rights(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--at", metavar="MOMENT", default="now", help="2h, a time, a revision (default now)")
    parser.add_argument("--subresource", metavar="NAME", default="", help="of the resource, as log or scale")


def add_reason_flag(parser: argparse.ArgumentParser) -> None:
    """Add the flag for the reason of the command's own changes."""
    parser.add_argument(
        "--reason",
        metavar="TEXT",
        dest="reason_to_give",
        default="",
        help="the reason, kept in the log with the changes",
    )


def checked_reason(text: str) -> str:
    """Return a reason for changes. OperatorError."""
    try:
        return parse_reason(text)
    except ValueError as error:
        raise OperatorError(f"the reason {error}") from None


# A duration as history accepts it, with a sign: -2h. argparse would take it for a flag.
_SIGNED_DURATION = r"-([0-9]+[0-9.a-zµ]*[a-zµ])"


def without_sign(argument: str) -> str:
    """Return ``2h`` for ``-2h``, which means the same moment; any other argument unchanged."""
    match = re.fullmatch(_SIGNED_DURATION, argument) if argument.startswith("-") else None
    return match[1] if match else argument
