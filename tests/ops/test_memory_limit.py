"""The memory limit of the server: the least of its control groups of both versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubechronicle.ops.memory_limit import memory_limit

MIB = 1 << 20


@pytest.mark.parametrize(
    ("own", "files", "limit"),
    [
        ("0::/\n", {"memory.max": f"{64 * MIB}\n"}, 64 * MIB),
        ("0::/a/b\n", {"a/memory.max": f"{32 * MIB}\n", "a/b/memory.max": "max\n"}, 32 * MIB),
        ("0::/a/b\n", {"a/memory.max": f"{32 * MIB}\n", "a/b/memory.max": f"{16 * MIB}\n"}, 16 * MIB),
        (
            "5:cpu,cpuacct:/a\n4:memory:/a\n",
            {"memory/a/memory.limit_in_bytes": f"{8 * MIB}\n", "memory/memory.limit_in_bytes": "9223372036854771712\n"},
            8 * MIB,
        ),
    ],
)
def test_the_least_limit_counts(own: str, files: dict[str, str], limit: int, tmp_path: Path) -> None:
    for name, text in files.items():
        file = tmp_path / "groups" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "own").write_text(own)
    assert memory_limit(tmp_path / "groups", tmp_path / "own") == limit


def test_without_control_groups_the_memory_of_the_machine_counts(tmp_path: Path) -> None:
    assert memory_limit(tmp_path / "none", tmp_path / "none") > 64 * MIB
