"""The memory that this server may use: the least limit of its control groups, or the memory of the machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

GROUPS: Final = Path("/sys/fs/cgroup")
OWN_GROUPS: Final = Path("/proc/self/cgroup")


def memory_limit(groups: Path = GROUPS, own_groups: Path = OWN_GROUPS) -> int:
    """Return the bytes of memory that all processes of the server may use together."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_limits(groups, own_groups)])


def _limits(groups: Path, own_groups: Path) -> Iterator[int]:
    """Yield the limits of the control groups of this process and of those above, of version 2 and of version 1."""
    for line in _read(own_groups).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        root = groups / "memory" if controllers else groups
        group = root / path.lstrip("/")
        for each in (group, *group.parents):
            limit = _read(each / ("memory.limit_in_bytes" if controllers else "memory.max")).strip()
            if limit.isdecimal():  # not "max"
                yield int(limit)
            if each == root:
                break


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""
