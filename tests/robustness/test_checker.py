"""The checker of histories rejects what no register does. It is built by ``make robustness``."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

CHECKER = Path(__file__).resolve().parents[2] / ".cache" / "bin" / "robustness-checker"


def operation(kind: str, start: int, end: int, **more: Any) -> dict[str, Any]:
    return {"client": start, "key": "r", "kind": kind, "start": start, "end": end, "outcome": "done"} | more


WRITTEN = operation("write", 1, 2, new="a")
LOST = operation("write", 3, 0, new="b", outcome="unknown")


@pytest.mark.parametrize(
    ("history", "right"),
    [
        ([WRITTEN, operation("read", 3, 4, value="a")], True),
        ([WRITTEN, operation("read", 3, 4, value="")], False),  # an old value
        ([WRITTEN, operation("swap", 3, 4, old="a", new="b"), operation("read", 5, 6, value="b")], True),
        ([WRITTEN, operation("swap", 3, 4, old="x", new="b")], False),  # it had another value
        ([WRITTEN, operation("swap", 3, 4, old="a", new="b", outcome="refused")], False),
        ([WRITTEN, LOST, operation("read", 5, 6, value="a"), operation("read", 7, 8, value="b")], True),
        ([WRITTEN, LOST, operation("read", 5, 6, value="b"), operation("read", 7, 8, value="a")], False),  # twice
        ([operation("swap", 1, 0, old="x", new="b", outcome="unknown"), operation("read", 3, 4, value="b")], False),
    ],
)
def test_a_history_is_judged(history: list[dict[str, Any]], right: bool, tmp_path: Path) -> None:
    if not CHECKER.exists():
        pytest.skip("make robustness has not built the checker")
    file = tmp_path / "history.jsonl"
    file.write_text("".join(f"{json.dumps(one)}\n" for one in history))
    done = subprocess.run([str(CHECKER), str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == (0 if right else 1), done.stdout + done.stderr
