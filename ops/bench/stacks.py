"""Shorten and add up samples of stacks, as py-spy writes them (``outermost;…;innermost COUNT``).

This module imports only the standard library, because another Python draws the pictures (flames.py).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

MAX_DEPTH = 40  # frames above the first fork; deeper frames are added to the last one
MIN_SHARE = 0.004  # of all samples; smaller frames are left out
COMMON = 0.85  # share of all samples in a common outer frame; the rest are incomplete stacks

_FRAME = re.compile(r"^(?P<function>.*) \((?P<file>[^()]*?)(?::\d+)?\)$")
# The part of a path before the module: an environment, the standard library, a checkout; otherwise all folders.
_PATH_PREFIX = re.compile(r"^(?:.*/(?:site-packages|dist-packages)/|.*/python3\.\d+/|.*kubechronicle/|/.*/)")


@dataclass(slots=True)
class Frame:
    """A function at one position of the tree. ``count``: samples in it and in the functions it called."""

    name: str
    count: int = 0
    called: dict[str, Frame] = field(default_factory=dict)

    def inner(self) -> Iterator[Frame]:
        """Return the called functions, the largest first."""
        return iter(sorted(self.called.values(), key=lambda frame: (-frame.count, frame.name)))


def short(frame: str) -> str:
    """Return ``function (module)``; for native code, the library."""
    match = _FRAME.match(frame)
    if match is None:
        return frame
    file = _PATH_PREFIX.sub("", match["file"]).removesuffix(".py")
    return f"{match['function'].replace('.<locals>', '')} ({file})"


def samples(lines: Iterable[str]) -> Counter[tuple[str, ...]]:
    """Return the number of samples per stack, without the names of threads."""
    counts: Counter[tuple[str, ...]] = Counter()
    for line in lines:
        text, _, count = line.rstrip().rpartition(" ")
        if count.isdigit():
            frames = [frame for frame in text.split(";") if not frame.startswith(("process ", "thread "))]
            counts[tuple(short(frame) for frame in frames)] += int(count)
    return counts


def tree(stacks: Counter[tuple[str, ...]]) -> Frame:
    """Merge all stacks into a tree, without common outer frames, and with limits on share and depth."""
    root = Frame("all", sum(stacks.values()))
    for stack, count in stacks.items():
        frame = root
        for name in stack:
            frame = frame.called.setdefault(name, Frame(name))
            frame.count += count
    # The event loop and its callers are in almost every sample.
    while len(top := [frame for frame in root.called.values() if frame.count >= COMMON * root.count]) == 1:
        root = top[0]
    _prune(root, min_count=MIN_SHARE * root.count, max_depth=MAX_DEPTH)
    return root


def _prune(frame: Frame, *, min_count: float, max_depth: int) -> None:
    called = frame.called.items() if max_depth else ()
    frame.called = {name: inner for name, inner in called if inner.count >= min_count}
    for inner in frame.called.values():
        _prune(inner, min_count=min_count, max_depth=max_depth - 1)


def depth(frame: Frame) -> int:
    return 1 + max((depth(inner) for inner in frame.called.values()), default=0)


def shares(stacks: Counter[tuple[str, ...]]) -> list[tuple[str, float]]:
    """Return the share of samples by owner of the innermost frame, a folder of ours or a library; largest first."""
    owners: Counter[str] = Counter()
    for stack, count in stacks.items():
        owners[owner(stack)] += count
    total = sum(owners.values()) or 1
    return [(name, count / total) for name, count in owners.most_common()]


def owner(stack: Sequence[str]) -> str:
    if not stack:
        return "?"
    match = _FRAME.match(stack[-1])
    file = match["file"] if match else stack[-1]
    return "generated code" if file.startswith("<") else file.partition("/")[0] or "unknown"
