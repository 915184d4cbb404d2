"""Tags of declarative validation: from their text to a tree.

    parse('+k8s:beta(since: "1.37")=+k8s:ifEnabled(HPAScaleToZero)=+k8s:minimum=0')

is a tag "beta" around a tag "ifEnabled" with the argument HPAScaleToZero around a tag "minimum" with the value 0. A
value or an argument may stand in quotes; a comment may follow after " #" (k8s.io/gengo ``codetags``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

Argument: TypeAlias = str | int | bool

PREFIX: Final = "+k8s:"
_TAG: Final = re.compile(r"\+k8s:(\w+)(?:\(([^)]*)\))?(?:=(.*))?\Z")
_ARGUMENT: Final = re.compile(r'\s*(?:(\w+)\s*:\s*)?("[^"]*"|[^",\s]+)\s*(?:,|\Z)')


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag, without its prefix. ``argument``: the one without a name. ``value``: without quotes."""

    name: str
    argument: str
    named: Mapping[str, Argument]
    value: str
    inner: Tag | None

    def parts(self) -> Iterator[Tag]:
        """Yield the tag and those in it."""
        yield self
        if self.inner is not None:
            yield from self.inner.parts()


def parse(text: str) -> Tag:
    """Return the tag of a text. ValueError if it is none."""
    match = _TAG.match(text)
    if match is None:
        raise ValueError(f"not a tag: {text}")
    name, arguments, value = match.groups()
    named = dict(_arguments(arguments or "", text))
    argument = str(named.pop("", ""))
    if value is not None and value.startswith(PREFIX):
        return Tag(name, argument, named, "", parse(value))
    return Tag(name, argument, named, _unquoted((value or "").partition(" #")[0].strip()), None)


def parsed(texts: Iterable[str]) -> list[Tag]:
    """Return the tags of declarative validation among all tags of a field or type, in the order of their evaluation.

    That is by the outermost name, and for one name in the order of the source.
    """
    return sorted((parse(text) for text in texts if text.startswith(PREFIX)), key=lambda tag: tag.name)


def _arguments(text: str, whole: str) -> Iterator[tuple[str, Argument]]:
    position = 0
    while position < len(text):
        match = _ARGUMENT.match(text, position)
        if match is None:
            raise ValueError(f"bad arguments of a tag: {whole}")
        yield match[1] or "", _typed(match[2])
        position = match.end()


def _typed(text: str) -> Argument:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch(r"-?\d+", text) else _unquoted(text)


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in '"`' else text
