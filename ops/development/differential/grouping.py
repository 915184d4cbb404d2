"""Groups of differences: a signature without names and indices, and the smallest example of each."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from kubechronicle.ops.development.differential.compare import Difference

TEMPLATE = re.compile(r"spec\.(?:jobTemplate\.spec\.)?template\.(?=spec|metadata)")
INDEX = re.compile(r"\[(?:\d+|\{[^}]*\}|[^\]]*)\]")
MAPS = re.compile(
    r"((?:^|[. ])(?:f:)?(?:labels|annotations|nodeSelector|matchLabels|data|binaryData|stringData|parameters"
    r"|limits|requests|hard|used|capacity|allocatable|attributes|volumeAttributes|podFixed|default|defaultRequest|max|min))(?:\[\]|\.f:\S+|\.[\w:-]+)$"
)
QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'|`[^`]*`")
NUMBER = re.compile(r"(?<![\w:])-?\d[\w.+-]*")
OWNED = re.compile(r"\[(f:[^\]]*)\]")
GO_VALUE = re.compile(r"(?:Invalid value|Unsupported value|Duplicate value|Too many|Too long): .*?(?=: |$)")
SUBJECT = re.compile(r"^[\w.]* ?\"[^\"]*\" is invalid:")
UNMARSHAL = re.compile(
    r"cannot unmarshal (\w+)[^:]*? into Go (?:struct field \S+|value) of type (\[\]|\*|\w+(?=\.)|map|\w+)\S*"
)
HANDLED = re.compile(r"\w+ in version “…” cannot be handled as an? \w+")
ITEM = re.compile(r"\[(?:\d+|[a-z]:\{[^}]*\})\]")
LONGEST = 220


@dataclass(slots=True)
class Example:
    """One occurrence: the steps of its sequence up to the differing one, and both answers."""

    seed: str
    steps: list[dict[str, Any]]
    difference: Difference
    want: Any = None
    have: Any = None
    shrunk: bool = False
    reproduced: bool | None = None

    @property
    def size(self) -> int:
        return len(self.steps) * 400 + sum(len(str(step)) for step in self.steps)


@dataclass(slots=True)
class Group:
    """All occurrences of one signature."""

    signature: tuple[str, str, str]
    count: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    verbs: Counter[str] = field(default_factory=Counter)
    example: Example | None = None

    def add(self, kind: str, verb: str) -> None:
        self.count += 1
        self.kinds[kind] += 1
        self.verbs[verb] += 1

    def take(self, other: Group) -> None:
        self.count += other.count
        self.kinds += other.kinds
        self.verbs += other.verbs
        if other.example and (self.example is None or other.example.size < self.example.size):
            self.example = other.example


def signature(difference: Difference, kind: str) -> tuple[str, str, str]:
    """Return verdict, type and pattern of a difference. The templates of workloads count as the pods they make."""
    place = difference.place
    texts = difference.verdict == "strict" or " → " in difference.type
    return difference.verdict, difference.type, (general_text(place) if texts else general_path(place))[:LONGEST]


def general_path(path: str) -> str:
    """Return a path, or several with a semicolon between, without indices, keys of maps and templates."""
    path = INDEX.sub("[]", OWNED.sub(r".\1", path))
    return "; ".join(TEMPLATE.sub("", MAPS.sub(r"\1.*", part)) for part in path.split("; "))


def general_text(text: str) -> str:
    """Return a message without names, values and numbers."""
    text = SUBJECT.sub("… is invalid:", text)
    text = UNMARSHAL.sub(r"cannot unmarshal \1 into Go … of type \2", text)
    text = QUOTED.sub("“…”", text)
    text = HANDLED.sub("… cannot be handled as …", text)
    text = GO_VALUE.sub(lambda match: match[0].split(": ")[0] + ": …", text)
    text = TEMPLATE.sub("", ITEM.sub("[]", text))
    return NUMBER.sub("N", text)


class Groups:
    """Groups by signature, with a bounded number of examples."""

    def __init__(self) -> None:
        self.groups: dict[tuple[str, str, str], Group] = {}

    def add(self, difference: Difference, kind: str, verb: str) -> Group:
        key = signature(difference, kind)
        group = self.groups.setdefault(key, Group(key))
        group.add(kind, verb)
        return group

    def merge(self, other: Groups) -> None:
        for key, group in other.groups.items():
            self.groups.setdefault(key, Group(key)).take(group)

    def ordered(self, verdict: str | None = None) -> list[Group]:
        chosen = [group for group in self.groups.values() if verdict in (None, group.signature[0])]
        return sorted(chosen, key=lambda group: (group.signature[0], -group.count, group.signature))


def label(counter: Counter[str], most: int = 3) -> str:
    """Return the names of a counter, or * when there are many."""
    names = [name for name, _ in counter.most_common()]
    return ", ".join(names) if len(names) <= most else f"* ({len(names)})"
