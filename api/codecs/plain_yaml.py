"""A reader of plain YAML: mappings, and lists of mappings, of words on one line, as kubectl writes kubeconfigs.

    clusters:
    - cluster:
        server: https://127.0.0.1:6443
      name: shop

It leaves all else to PyYAML. Most kubeconfigs are plain, and PyYAML's import takes a fifth of the start of a command.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

# A word begins with a letter, so it is no number, time or sign of YAML. It has no blank, and no colon at its end.
_LINE: Final = re.compile(
    r"( *)(- )?([A-Za-z][A-Za-z0-9-]*):(?: ([A-Za-z](?:[A-Za-z0-9_/+.:=@-]*[A-Za-z0-9_/+.=@-])?|\{\}|\"\"))?"
)
_VALUES: Final = {"true": True, "false": False, '""': ""}
# Words that YAML 1.1 takes for booleans or nothing, in lower case.
_RESERVED: Final = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null"})
_DEEPEST: Final = 20


class _Line(NamedTuple):
    indent: int
    begins_item: bool
    key: str
    value: str | None


class _NotPlainError(Exception):
    """The text is no plain YAML, or none at all."""


def read(text: str) -> dict[str, Any] | None:
    """Return the mapping, or None if the text may have another meaning to PyYAML."""
    lines = []
    for line in text.removesuffix("\n").split("\n"):
        if not (match := _LINE.fullmatch(line)) or match[3].lower() in _RESERVED:
            return None
        lines.append(_Line(len(match[1]), bool(match[2]), match[3], match[4]))
    reader = _Reader(lines)
    try:
        found = reader.mapping(0)
    except _NotPlainError:
        return None
    return found if reader.at_end else None


class _Reader:
    def __init__(self, lines: list[_Line]) -> None:
        self._lines, self._next = lines, 0

    @property
    def at_end(self) -> bool:
        return self._next == len(self._lines)

    def mapping(self, indent: int, *, in_item: bool = False) -> dict[str, Any]:
        """Read the keys at this indentation. ``in_item``: the first one stands behind a dash."""
        if indent > 2 * _DEEPEST:
            raise _NotPlainError
        found: dict[str, Any] = {}
        while not self.at_end:
            line = self._lines[self._next]
            if not in_item and (line.indent != indent or line.begins_item):
                break
            in_item = False
            self._next += 1
            found[line.key] = self._block(indent) if line.value is None else _value(line.value)
        return found

    def _block(self, indent: int) -> Any:
        """Read the mapping or list below a key at this indentation; None: nothing is there."""
        if self.at_end:
            return None
        line = self._lines[self._next]
        if line.begins_item and line.indent >= indent:
            return self._items(line.indent)
        return self.mapping(line.indent) if line.indent > indent else None

    def _items(self, indent: int) -> list[dict[str, Any]]:
        found = []
        while not self.at_end and self._lines[self._next].begins_item and self._lines[self._next].indent == indent:
            found.append(self.mapping(indent + 2, in_item=True))
        return found


def _value(word: str) -> Any:
    if word == "{}":
        return {}
    if word not in _VALUES and word.lower() in _RESERVED:
        raise _NotPlainError
    return _VALUES.get(word, word)
