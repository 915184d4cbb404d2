"""The merge of a branch into the cluster: a three-way merge of each object that the branch changed.

    base     the state at which the branch began: replicas 3, image web:1
    branch   replicas 5, image web:2
    now      replicas 3, image web:3, by jane, and a label of hers
    merged   replicas 5, image web:3: a conflict, which stays as it is now; the label stays, too

To merge a change is to undo its contrary: so reverting.py has the rules, and user_changes.py makes the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Literal

from kubechronicle.api.history.branches import CHANGES
from kubechronicle.api.history.left_objects import left_alone, made_once
from kubechronicle.api.history.reverting import Undone, merged_objects
from kubechronicle.api.meta.owners import Key
from kubechronicle.api.registry.groups import HISTORY as GROUP
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.client import ApiError, Client
from kubechronicle.ops.client.kinds import Kind, Kinds
from kubechronicle.ops.client.restoring.user_changes import Reversal, UserChanges, reversals
from kubechronicle.ops.client.states import ClusterState

PATH: Final = f"/apis/{GROUP}/v1/{CHANGES}"
SECRET: Final = ("", "Secret")
ADDRESSES: Final = ("clusterIP", "clusterIPs")
ACCOUNT_CONTROLLER: Final = "service-account-controller"
"""The field manager of the service accounts that each namespace gets."""


def read_states(inside: Client, kinds: Kinds, against: str) -> tuple[ClusterState, ClusterState]:
    """Return the objects that a branch changed, in the state ``against`` which they are compared, and in the branch."""
    old, new = ClusterState(), ClusterState()
    for change in inside.items(PATH, {"against": against}):
        if change["object"]["resource"].endswith(".kubechronicle"):
            continue  # the server's own bookkeeping, which has no API
        plural, _, group = change["object"]["resource"].partition(".")
        for state, obj in ((old, change.get("before")), (new, change.get("after"))):
            if obj is not None:
                state.add(kinds.of_object(obj["apiVersion"], obj["kind"]) or _unserved(plural, group, obj), obj)
    return old, new


def _unserved(plural: str, group: str, obj: Object) -> Kind:
    """Return the kind of an object whose definition the branch does not serve, such as one it deleted."""
    version = str(obj["apiVersion"]).rpartition("/")[2]
    return Kind(group, version, plural, "", obj["kind"], bool(obj["metadata"].get("namespace")), frozenset())


def show_secrets(state: ClusterState, client: Client) -> dict[Key, str]:
    """Replace masked Secrets by their values, which the server records if they are of the past.

    Return the reasons for those that stay masked.
    """
    masked: dict[Key, str] = {}
    for key in [key for key in state.objects if key[:2] == SECRET]:
        try:
            found = client.get_if(state.kinds[key[:2]].path(key[2], key[3]))
        except ApiError as error:
            masked[key] = error.message
        else:
            if found is None:
                masked[key] = "its values cannot be read"
            else:
                state.objects[key] = found
    return masked


def merged_state(
    base: ClusterState, now: ClusterState, branch: ClusterState, *, secrets: bool
) -> tuple[ClusterState, dict[Key, list[str]]]:
    """Return the state of the branch with the changes of others since its base, and the fields that both changed.

    There the branch's values are kept. ``secrets``: the states have the values of Secrets; otherwise these stay as they
    are in the branch.
    """
    found, conflicts = ClusterState(), dict[Key, list[str]]()
    found.kinds, found.unread = branch.kinds, branch.unread
    for key, obj in branch.objects.items():
        was, live = base.objects.get(key), now.objects.get(key)
        found.objects[key] = obj
        if was is None or live is None or (key[:2] == SECRET and not secrets):
            continue
        merged, fields = merged_objects(was, live, obj)
        merged.pop("status", None)
        found.objects[key] = merged | ({"status": live["status"]} if "status" in live else {})
        if fields:
            conflicts[key] = fields
    return found, conflicts


def merges(
    client: Client, base: ClusterState, branch: ClusterState, *, revision: int, cause: int, masked: Mapping[Key, str]
) -> tuple[list[Reversal], dict[str, str]]:
    """Return the plan of a merge, and the objects that cannot be merged with the reasons. ApiError.

    ``revision``: the base of the branch. ``cause``: the revision that the steps follow from. ``masked``: Secrets whose
    values are not known.
    """
    changes = UserChanges(skipped={"/".join(filter(None, key[1:])): why for key, why in masked.items()})
    for key in dict.fromkeys((*base.objects, *branch.objects)):
        if key in masked:
            continue
        was, wanted = base.objects.get(key), _unplaced(branch.objects.get(key), created=key not in base.objects)
        if was is None and wanted is not None and _made_by_controllers(wanted):
            continue
        state = wanted or was
        assert state is not None
        kind = (branch if key in branch.objects else base).kinds[key[:2]]
        version = str(state["apiVersion"]).rpartition("/")[2]
        changes.kinds[key[:2]] = kind._replace(version=version)
        changes.objects[key] = [Undone(revision, _contrary(was, wanted), wanted, was)]
    plan = reversals(client, changes)
    return [each if each.step is None else replace(each, step=each.step._replace(cause=cause)) for each in plan], (
        changes.skipped
    )


def _made_by_controllers(created: Object) -> bool:
    """Tell whether the branch's own loops have made an object: those of the cluster make theirs."""
    meta = created["metadata"]
    managers = {entry.get("manager") for entry in meta.get("managedFields") or ()}
    is_account = (created.get("kind"), meta["name"]) == ("ServiceAccount", "default")
    return bool(left_alone(created) or made_once(created)) or (is_account and managers <= {ACCOUNT_CONTROLLER})


def _contrary(was: Object | None, wanted: Object | None) -> Literal["Create", "Update", "Delete"]:
    """Return the operation whose undoing is the change of the branch."""
    return "Delete" if was is None else "Create" if wanted is None else "Update"


def _unplaced(obj: Object | None, *, created: bool) -> Object | None:
    """Return an object without the cluster IP that the branch has chosen for a new Service."""
    if obj is None or not created or obj.get("kind") != "Service" or _chosen_by_user(obj):
        return obj
    return obj | {"spec": {name: value for name, value in obj["spec"].items() if name not in ADDRESSES}}


def _chosen_by_user(service: Object) -> bool:
    """Tell whether a client has set the cluster IP, as managed fields say; that of a headless Service is none."""
    entries = service["metadata"].get("managedFields") or ()
    return service["spec"].get("clusterIP") == "None" or any(
        "f:clusterIP" in ((entry.get("fieldsV1") or {}).get("f:spec") or {}) for entry in entries
    )
