"""Branches for tests: their paths and objects."""

from __future__ import annotations

from typing import Any

from in_process import InProcess

HISTORY = "/apis/history.kubechronicle.dev/v1"
BRANCHES = f"{HISTORY}/branches"
IN = "/branch/try"
CHANGES = f"{IN}{HISTORY}/branchchanges"


def branch(name: str = "try", revision: int | None = None) -> dict[str, Any]:
    spec = {"spec": {"revision": revision}} if revision is not None else {}
    return {"apiVersion": "history.kubechronicle.dev/v1", "kind": "Branch", "metadata": {"name": name}, **spec}


async def create(server: InProcess, name: str = "try", revision: int | None = None) -> int:
    """Create a branch and return its base."""
    made = await server.post(BRANCHES, branch(name, revision))
    return int(made["spec"]["revision"])


async def changes(server: InProcess, kind: str = "ConfigMap", query: str = "", **request: Any) -> dict[str, str]:
    """Return the operations of the changed objects of a kind, by name."""
    listed = await server.get(f"{CHANGES}{query}", **request)
    found = [each for each in listed["items"] if each["object"]["kind"] == kind]
    return {each["object"]["name"]: each["operation"] for each in found}
