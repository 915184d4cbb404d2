"""Samples of stacks, as py-spy writes them (``outermost;…;innermost COUNT``), made shorter and added up.

Nothing but the standard library is imported here, because the pictures are drawn by another Python (flames.py).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

DEEPEST = 40  # frames above the first fork; what is deeper is added to the last of them
SMALLEST = 0.004  # share of all samples below which a frame is not told
COMMON = 0.85  # share of all samples from which on a frame belongs to the ground; the others are stacks read half

_FRAME = re.compile(r"^(?P<function>.*) \((?P<file>[^()]*?)(?::\d+)?\)$")
# What a path begins with before the module: of an environment, the standard library, a checkout; of anything else, all
# folders.
_PLACE = re.compile(r"^(?:.*/(?:site-packages|dist-packages)/|.*/python3\.\d+/|.*kubechronicle/|/.*/)")


@dataclass(slots=True)
class Frame:
    """A function, in one place of the tree; ``count``: samples in it and in what it called."""

    name: str
    count: int = 0
    called: dict[str, Frame] = field(default_factory=dict)

    def inner(self) -> Iterator[Frame]:
        """What it called, the most first."""
        return iter(sorted(self.called.values(), key=lambda frame: (-frame.count, frame.name)))


def short(frame: str) -> str:
    """``function (file)`` without where the file is on this machine; of native code, the library."""
    found = _FRAME.match(frame)
    if found is None:
        return frame
    file = _PLACE.sub("", found["file"]).removesuffix(".py")
    return f"{found['function'].replace('.<locals>', '')} ({file})"


def samples(lines: Iterable[str]) -> Counter[tuple[str, ...]]:
    """How often each stack was seen; threads' names are no frames."""
    found: Counter[tuple[str, ...]] = Counter()
    for line in lines:
        text, _, count = line.rstrip().rpartition(" ")
        if count.isdigit():
            frames = [frame for frame in text.split(";") if not frame.startswith(("process ", "thread "))]
            found[tuple(short(frame) for frame in frames)] += int(count)
    return found


def tree(stacks: Counter[tuple[str, ...]]) -> Frame:
    """All stacks as one, without the frames all have in common, of the least share told and of the greatest depth."""
    root = Frame("all", sum(stacks.values()))
    for stack, count in stacks.items():
        at = root
        for name in stack:
            at = at.called.setdefault(name, Frame(name))
            at.count += count
    # The loop and what started it are below every sample but a few.
    while len(top := [frame for frame in root.called.values() if frame.count >= COMMON * root.count]) == 1:
        root = top[0]
    _prune(root, least=SMALLEST * root.count, deepest=DEEPEST)
    return root


def _prune(frame: Frame, *, least: float, deepest: int) -> None:
    kept = {name: inner for name, inner in frame.called.items() if inner.count >= least} if deepest else {}
    frame.called = kept
    for inner in kept.values():
        _prune(inner, least=least, deepest=deepest - 1)


def depth(frame: Frame) -> int:
    return 1 + max((depth(inner) for inner in frame.called.values()), default=0)


def shares(stacks: Counter[tuple[str, ...]]) -> list[tuple[str, float]]:
    """Whose the innermost frames are, as shares of all samples: a folder of ours, or a library; the most first."""
    owners: Counter[str] = Counter()
    for stack, count in stacks.items():
        owners[owner(stack)] += count
    total = sum(owners.values()) or 1
    return [(name, count / total) for name, count in owners.most_common()]


def owner(stack: Sequence[str]) -> str:
    if not stack:
        return "?"
    found = _FRAME.match(stack[-1])
    file = found["file"] if found else stack[-1]
    return "generated code" if file.startswith("<") else file.partition("/")[0] or "unknown"
