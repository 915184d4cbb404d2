"""The groups of a user at a moment: the log has those of each change, as the user's credential named them then."""

from __future__ import annotations

from kubechronicle.actors.history.rights import last_groups
from kubechronicle.api.access.rbac import SERVICE_ACCOUNT
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.http.authentication.user import GROUP_AUTHENTICATED
from kubechronicle.http.authorization.node import GROUP_NODES, NODE_PREFIX

ACCOUNTS = "system:serviceaccounts"


async def groups_then(log: RevisionLog, user: str, namespace: str, revision: int) -> tuple[tuple[str, ...], int]:
    """Return the groups of a user at a revision, and the revision of the user's change they are read from (0: none).

    The groups of service accounts follow from their names. A user without a change up to then has the group of all
    authenticated users, and a node that of nodes. ``namespace``: only changes there; "": all changes.
    """
    if user.startswith(SERVICE_ACCOUNT):
        of = user.removeprefix(SERVICE_ACCOUNT).partition(":")[0]
        return (ACCOUNTS, f"{ACCOUNTS}:{of}", GROUP_AUTHENTICATED), 0
    groups, changed = await last_groups(log, user, namespace, revision)
    if groups:
        return groups, changed
    if user.startswith(NODE_PREFIX):
        return (GROUP_NODES, GROUP_AUTHENTICATED), 0
    return (GROUP_AUTHENTICATED,), 0
