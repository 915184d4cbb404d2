"""Comparison of two states: of two moments, two namespaces or two clusters; and the commands that make one the other.

Across namespaces or clusters, the same object has other addresses, uids and owners. So the second state is first moved
to the place of the first (``moved``), and only the users' parts are compared (``own_part``): no status, nothing that
the server or a controller set.

The patch is a shell script with a kubectl command for each object, in the order of a restore. Each JSON patch tests the
values that it replaces, so that it fails if they have changed.
"""

from __future__ import annotations

import copy
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from kubechronicle.api.history.differences import Difference, differences
from kubechronicle.api.history.left_objects import lost, made_once
from kubechronicle.api.history.restore_plan import NEW_UID, Step, makeable, steps, uid_in_plan
from kubechronicle.api.history.restore_plan import target as aimed
from kubechronicle.api.meta.owners import Key, keys_of, owner_references, settle_owners
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.states import ClusterState, key_of

KUBECTL: Final = "${KUBECTL:-kubectl}"
NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"
END: Final = "END"
"""The end of an object in the script. JSON on one line never is that line."""


def moved(state: ClusterState, namespace: str, to: str) -> ClusterState:
    """Return a state as it would be in another place: its namespace renamed ("" for none), owners removed."""
    found = ClusterState()
    found.kinds, found.unread = state.kinds, state.unread
    for obj in state.objects.values():
        one = copy.deepcopy(obj)
        metadata = one["metadata"]
        owners = metadata.get("ownerReferences") or ()
        if owners and not any(owner.get("controller") for owner in owners):
            del metadata["ownerReferences"]  # their uids are others there
        if namespace:
            _rename(one, namespace, to)
        found.objects[key_of(one)] = one
    return found


def _rename(obj: Object, namespace: str, to: str) -> None:
    metadata = obj["metadata"]
    if metadata.get("namespace") == namespace:
        metadata["namespace"] = to
    if obj.get("kind") == "Namespace" and metadata["name"] == namespace:
        metadata["name"] = to
        if NAMESPACE_LABEL in (metadata.get("labels") or {}):
            metadata["labels"][NAMESPACE_LABEL] = to
    for subject in obj.get("subjects") or () if str(obj.get("kind", "")).endswith("RoleBinding") else ():
        if subject.get("namespace") == namespace:
            subject["namespace"] = to


def settled(old: ClusterState, new: ClusterState) -> ClusterState:
    """Return the second state with the first one's values of fields that the cluster chooses: node ports, volumes."""
    for key, obj in new.objects.items():
        live = old.objects.get(key)
        if live is None:
            continue
        if key[:2] == ("", "PersistentVolumeClaim") and (volume := live["spec"].get("volumeName")):
            obj["spec"]["volumeName"] = volume
        if key[:2] == ("", "Service"):
            ports = {port["port"]: port.get("nodePort") for port in live["spec"].get("ports") or ()}
            for port in obj["spec"].get("ports") or ():
                if port.get("nodePort") and ports.get(port["port"]):
                    port["nodePort"] = ports[port["port"]]
    return new


def own_part(obj: Object | None) -> Object | None:
    """Return the user's part of an object; None also for one that a controller or the server makes."""
    return None if obj is None or lost(obj) or made_once(obj) else makeable(obj)


# -- the patch --------------------------------------------------------------------------------------------------------


def patch_script(
    old: ClusterState, new: ClusterState, *, flags: Sequence[str], title: str, secrets: bool
) -> Iterator[str]:
    """Yield the lines of a script that turns the first state into the second. ``flags``: of each kubectl command.

    ``secrets``: the states have the values of Secrets; without them, Secrets are left out.
    """
    commands = _Commands(old, new, " ".join([KUBECTL, *map(shlex.quote, flags)]))
    yield "#!/bin/sh"
    yield f"# {_comment(title)}"
    yield "set -e"
    for step in steps(new.objects, old.objects, prune=True):
        group, kind, namespace, name = step.key
        place = f"{kind} {f'{namespace}/' if namespace else ''}{name}"
        if kind == "Secret" and not group and not secrets:
            if step.action != "leave":
                yield f"# left out: {_comment(place)}: its values are masked; --show-secrets has them"
        elif step.action == "leave":
            if own_differs(old.objects.get(step.key), new.objects.get(step.key)):
                yield f"# left alone: {_comment(place)}: {_comment(step.why)}"
        else:
            yield from commands.of(step)


def own_differs(before: Object | None, after: Object | None) -> bool:
    """Tell if an object exists in one state only, or its specification differs."""
    return before is None or after is None or before.get("spec") != after.get("spec")


class _Commands:
    """The kubectl commands of steps.

    An owner that the script itself creates gets its uid then. The script asks for this uid, and puts it into the
    references of dependents: with the uid of the other state, the garbage collector would delete them.
    """

    def __init__(self, old: ClusterState, new: ClusterState, kubectl: str) -> None:
        self._old, self._new, self._kubectl = old, new, kubectl
        self._kinds = {**old.kinds, **new.kinds}
        self._placeholders: dict[Key, str] = {}

    def of(self, step: Step) -> Iterator[str]:
        """Yield the lines of a step."""
        target = self._target(step.key)
        if step.action == "delete":
            yield f"{self._kubectl} delete {target}"
            return
        assert step.then is not None
        uid_of = partial(self._uid, namespace=step.key[2])
        if step.live is not None and step.action == "update":
            owners = owner_references(step.live, step.then, uid_of)
            changes = differences(step.live, aimed(step.live, step.then, owners))
            # On standard input: an argument has at most 128 KiB.
            command = f"{self._kubectl} patch {target} --type=json --patch-file=/dev/stdin"
            yield from self._fed(command, _json(_tested(changes)))
            return
        made = makeable(step.then)
        if gone := settle_owners(made, uid_of):
            yield f"# without its owner {_comment(', '.join(gone))}, which is gone"
        yield from self._fed(f"{self._kubectl} create -f -", _json(made))

    def _target(self, key: Key) -> str:
        group, kind, namespace, name = key
        resource = self._kinds[group, kind].full_name
        return shlex.quote(f"{resource}/{name}") + (f" -n {shlex.quote(namespace)}" if namespace else "")

    def _uid(self, reference: Mapping[str, Any], namespace: str) -> str:
        """Return the present uid of an owner, a placeholder if the script creates it, "" if there is none."""
        uid = uid_in_plan(reference, namespace, self._new.objects, self._old.objects)
        if uid != NEW_UID:
            return uid
        import hashlib  # which a comparison without a script does not need

        key = next(key for key in keys_of(reference, namespace) if key in self._new.objects)
        return self._placeholders.setdefault(key, f"uid-{hashlib.sha256(repr(key).encode()).hexdigest()}")

    def _fed(self, command: str, text: str) -> Iterator[str]:
        """Yield a command that reads the text, in which the script replaces the placeholders."""
        edits = []
        for number, (key, placeholder) in enumerate(self._placeholders.items()):
            if placeholder in text:
                yield f"uid{number}=$({self._kubectl} get {self._target(key)} -o jsonpath='{{.metadata.uid}}')"
                edits.append(f'-e "s/{placeholder}/$uid{number}/"')
        yield f"sed {' '.join(edits)} <<'{END}' | {command}" if edits else f"{command} <<'{END}'"
        yield text
        yield END


def _tested(changes: Sequence[Difference]) -> list[Mapping[str, Any]]:
    """Return the JSON patch of changes, which tests each value that it replaces or removes."""
    operations: list[Mapping[str, Any]] = []
    for change in changes:
        operation = change.operation()
        if "old" in operation:
            operations.append({"op": "test", "path": operation["path"], "value": operation.pop("old")})
        operations.append(operation)
    return operations


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def _comment(text: str) -> str:
    """Return a text as part of one line of a comment."""
    return "".join(character if character.isprintable() else "?" for character in text)
