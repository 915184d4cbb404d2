"""Branches as objects: a name, and the revision at which it begins; and its changes, as clients see them.

    kind: Branch                      metadata.name is in the URLs: /branch/NAME/…
    spec: {revision: 41}              the base: the state of the cluster that the branch begins with

A BranchChange is one object that the branch changed, with its state before and after. It is listed below /branch/NAME.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value
from kubechronicle.api.registry.groups import HISTORY
from kubechronicle.api.values.objects import Object, ReadOnlyObject

BRANCHES: Final = "branches"
RESOURCE: Final = f"{BRANCHES}.{HISTORY}"
CHANGES: Final = "branchchanges"
BRANCH_CHANGE: Final = "BranchChange"
USE: Final = "use"
"""The verb of the right to send requests below /branch/NAME."""

MOST: Final = 16
"""Branches at once."""
AGAINST: Final = ("base", "now")
"""The states that a branch is compared with."""


class BranchDifference(NamedTuple):
    """One object that a branch changed. ``before``: in the state that it is compared with; None: it did not exist."""

    resource: str
    namespace: str
    name: str
    revision: int
    before: Object | None
    after: Object | None


def base_of(branch: ReadOnlyObject) -> int:
    """Return the revision at which a branch begins."""
    return int((branch.get("spec") or {}).get("revision") or 0)


def validate(branch: Object) -> list[Cause]:
    """Check the base, which the server sets if the client names none."""
    spec = branch.get("spec")
    revision = spec.get("revision") if isinstance(spec, Mapping) else None
    if isinstance(revision, int) and not isinstance(revision, bool) and revision > 0:
        return []
    return [invalid_value("spec.revision", revision, "must be the number of a revision, greater than 0")]


def validate_update(new: Object, old: Object) -> list[Cause]:
    """Reject another base: the changes of the branch rest on it."""
    if (new.get("spec") or {}) != (old.get("spec") or {}):
        return [forbidden("spec", "a branch keeps its base; create another one")]
    return []


def change_object(difference: BranchDifference, username: str) -> Object:
    """Return a BranchChange. ``username``: of the object's last change in the branch."""
    shown: ReadOnlyObject = difference.after or difference.before or {}
    operation = "Create" if difference.before is None else "Delete" if difference.after is None else "Update"
    found: dict[str, Any] = {
        "apiVersion": f"{HISTORY}/v1",
        "kind": BRANCH_CHANGE,
        "metadata": {"name": str(difference.revision), "resourceVersion": str(difference.revision)},
        "operation": operation,
        "object": {
            "apiVersion": shown.get("apiVersion", ""),
            "kind": shown.get("kind", ""),
            "resource": difference.resource,
            **({"namespace": difference.namespace} if difference.namespace else {}),
            "name": difference.name,
        },
        "username": username,
    }
    if difference.before is not None:
        found["before"] = difference.before
    if difference.after is not None:
        found["after"] = difference.after
    return found
