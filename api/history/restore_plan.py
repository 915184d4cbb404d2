"""Plans that restore a past state: the steps, their order, and the user's part of each object.

    steps(then, now)        the steps from the present state to the past state
    makeable(found)         an object for a POST: without the fields of the server and of controllers
    target(live, then)      an object for a PUT: the user's part of then, the server's part of now

A plan is safe to run twice: after the first run, nothing differs but what the server sets. That is no step.

Dependents come behind the owners that the same plan creates, so that they get their new uids (owners.py).
restore_rules.py has the tables. Sources: the REST strategies of k8s.io/kubernetes/pkg/registry (fields reset on
create), the controllers of k8s.io/kubernetes/pkg/controller (their annotations and labels).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, Literal, NamedTuple

from kubechronicle.api.history.differences import Difference, differences
from kubechronicle.api.history.left_objects import finished, left_alone, lost, made_once, told
from kubechronicle.api.history.restore_rules import (
    CONTROLLERS_ANNOTATIONS,
    CONTROLLERS_TAINTS,
    LIVE_FIELDS,
    NODE,
    ORDER,
    SERVERS_FIELDS,
    SERVERS_FINALIZERS,
    SERVERS_METADATA,
    VOLUME_OF_TOKENS,
)
from kubechronicle.api.meta.owners import Key, keys_of, owner_references, owners_first
from kubechronicle.api.values.objects import Object

Action = Literal["create", "update", "replace", "delete", "leave", "rebind"]
NEW_UID: Final = "(new)"
"""In a plan, the uid of an owner that the plan creates."""

ELSEWHERE: Final = next(rank for rank, kinds in enumerate(ORDER) if ("*", "*") in kinds)


class Step(NamedTuple):
    """The action for one object.

    ``then``, ``live``: its past and present state, None if absent.
    ``changes``: of an update.
    ``why``: the reason to leave it unchanged, or to delete and create it (``replace``) instead of changing it.
    ``problem``: the server's rejection in a dry run.
    ``differs``: the fields that are others now and stay so, because no request can set them.
    ``cause``: the revision that the step undoes, 0 if it is not known.
    """

    action: Action
    key: Key
    then: Object | None = None
    live: Object | None = None
    changes: tuple[Difference, ...] = ()
    why: str = ""
    problem: str = ""
    differs: str = ""
    cause: int = 0

    @property
    def ended(self) -> bool:
        """True for an object left because it was being deleted then."""
        return self.action == "leave" and self.then is not None and "deletionTimestamp" in self.then["metadata"]


def steps(
    then: Mapping[Key, Object],
    now: Mapping[Key, Object],
    *,
    prune: bool,
    controlled: bool = False,
    named: bool = False,
) -> list[Step]:
    """Return the steps in order; unchanged objects come last. Only ``prune`` adds deletions, and none of namespaces.

    ``controlled``: objects that a controller would make again are restored, too.
    ``named``: the objects are named one by one, so those that something makes at its start are restored, too.
    """
    done, left = [], []
    for key, was in then.items():
        differs = ""
        live = now.get(key)
        why = lost(was, controlled=controlled)
        why = why or (left_alone(live, controlled=controlled) if live is not None else finished(was))
        if live is not None or key[:2] == NODE:
            why = why or ("" if named else made_once(was))
        if why:
            left.append(Step("leave", key, was, live, why=why))
        elif live is None or live["metadata"].get("deletionTimestamp"):
            done.append(Step("create", key, was, live))
        else:
            differs = told(live, was)
            owners = owner_references(live, was, partial(uid_in_plan, namespace=key[2], then=then, now=now))
            if changes := differences(live, target(live, was, owners)):
                why = made_again(live, was)
                done.append(Step("update", key, was, live, tuple(changes), why=why, differs=differs))
            elif differs:
                left.append(Step("leave", key, was, live, differs=differs))
    by_key = {step.key: step for step in sorted(done, key=lambda step: order(step.key))}
    done = [by_key[key] for key in owners_first(list(by_key), then)]
    if prune:
        gone = [Step("delete", key, None, live) for key, live in now.items() if _is_to_go(key, live, then)]
        done += sorted(gone, key=lambda step: order(step.key), reverse=True)
    return done + sorted(left, key=lambda step: order(step.key))


def made_again(live: Object, was: Object) -> str:
    return "it was created again since" if live["metadata"].get("uid") != was["metadata"].get("uid") else ""


def _is_to_go(key: Key, live: Object, then: Mapping[Key, Object]) -> bool:
    terminating = live["metadata"].get("deletionTimestamp")
    stays = terminating or left_alone(live) or made_once(live)
    return key not in then and key[:2] != ("", "Namespace") and not stays


def order(key: Key) -> tuple[int, Key]:
    """Return the sort key of an object: dependencies come first."""
    group, kind, _, _ = key
    for rank, kinds in enumerate(ORDER):
        if (group, kind) in kinds or ("*", kind) in kinds:
            return rank, key
    return ELSEWHERE, key


def uid_in_plan(
    reference: Mapping[str, Any], namespace: str, then: Mapping[Key, Object], now: Mapping[Key, Object]
) -> str:
    """Return the present uid of an owner; NEW_UID if the plan creates it, "" if there is none."""
    for key in keys_of(reference, namespace):
        owner = now.get(key)
        if owner is not None and not owner["metadata"].get("deletionTimestamp"):
            return str(owner["metadata"].get("uid", ""))
        if key in then and not lost(then[key]):
            return NEW_UID
    return ""


def held(live: Object) -> str:
    """Return the finalizers that hold an object in deletion; "": none, or it is in none."""
    metadata = live["metadata"]
    return ", ".join(metadata.get("finalizers") or ()) if metadata.get("deletionTimestamp") else ""


def rebindings(plan: Iterable[Step], volumes: Mapping[str, Object]) -> list[Step]:
    """Return the steps that bind present volumes to the claims that a plan creates again.

    A volume that is retained names the uid of its dead claim, and is never bound to another one. ``volumes``: by name.
    """
    found = []
    for step in plan:
        if step.action != "create" or step.key[:2] != ("", "PersistentVolumeClaim") or step.then is None:
            continue
        live = volumes.get(str((step.then.get("spec") or {}).get("volumeName") or ""))
        reference = ((live or {}).get("spec") or {}).get("claimRef") or {}
        was = step.then["metadata"].get("uid")
        if live is None or not was or reference.get("uid") != was:
            continue
        change = Difference("replace", ("spec", "claimRef", "uid"), "spec.claimRef.uid", was, NEW_UID)
        key = ("", "PersistentVolume", "", live["metadata"]["name"])
        found.append(
            Step("rebind", key, step.then, live, (change,), why=f"its claim is {step.key[3]} in {step.key[2]}")
        )
    return found


# -- the user's and the server's part ----------------------------------------------------------------------------------


def makeable(found: Object, *, addresses: bool = False) -> Object:
    """Return an object for a POST. ``addresses``: keep a Service's cluster IP, which may be allocated meanwhile."""
    made = {name: copy.deepcopy(value) for name, value in found.items() if name != "status"}
    made["metadata"] = metadata = {
        name: value for name, value in made["metadata"].items() if name not in SERVERS_METADATA
    }
    _keep(metadata, "annotations", lambda name: name not in CONTROLLERS_ANNOTATIONS)
    finalizers = [name for name in metadata.pop("finalizers", None) or () if name not in SERVERS_FINALIZERS]
    if finalizers:
        metadata["finalizers"] = finalizers
    address = (made.get("spec") or {}).get("clusterIP") if made.get("kind") == "Service" else None
    for path in _servers_fields(made):
        if path[1:] in (("clusterIP",), ("clusterIPs",)) and (addresses or address == "None"):
            continue
        _drop(made, path)
    if made.get("kind") == "Pod":
        _without_token(made["spec"])
    return made


def _keep(metadata: Object, name: str, wanted: Any) -> None:
    values = {key: value for key, value in (metadata.pop(name, None) or {}).items() if wanted(key)}
    if values:
        metadata[name] = values


def _servers_fields(found: Object) -> Iterator[tuple[str, ...]]:
    group = str(found.get("apiVersion", "")).rpartition("/")[0]
    for condition, path in SERVERS_FIELDS.get((group, found.get("kind", "")), ()):
        if condition(found):
            yield path


def _drop(found: Any, path: tuple[str, ...]) -> None:
    for name in path[:-1]:
        found = found.get(name) if isinstance(found, dict) else None
    if isinstance(found, dict):
        found.pop(path[-1], None)


def _token_volumes(spec: Object) -> list[Object]:
    return [volume for volume in spec.get("volumes") or () if volume.get("name", "").startswith(VOLUME_OF_TOKENS)]


def _with_token_of(spec: Object, live: Object) -> None:
    """Give a Pod's spec the volume of the live one's token, whose name is drawn at random, in place of its own."""
    own, present = _token_volumes(spec), _token_volumes(live)
    if len(own) != 1 or len(present) != 1:
        if own != present:
            _without_token(spec)
            _add_token_of(spec, live, present)
        return
    spec["volumes"] = [present[0] if volume is own[0] else volume for volume in spec["volumes"]]
    for container in _containers(spec):
        for mount in container.get("volumeMounts") or ():
            if mount.get("name") == own[0]["name"]:
                mount["name"] = present[0]["name"]


def _add_token_of(spec: Object, live: Object, volumes: list[Object]) -> None:
    names = {volume["name"] for volume in volumes}
    if not names:
        return
    spec["volumes"] = [*(spec.get("volumes") or ()), *volumes]
    mounts = {
        container.get("name"): [each for each in container.get("volumeMounts") or () if each.get("name") in names]
        for container in _containers(live)
    }
    for container in _containers(spec):
        if added := mounts.get(container.get("name")):
            container["volumeMounts"] = [*(container.get("volumeMounts") or ()), *added]


def _containers(spec: Object) -> Iterator[Object]:
    for listed in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(listed) or ()


def _without_token(spec: Object) -> None:
    """Remove the volume of the service account's token, which admission adds again."""
    names = {volume["name"] for volume in _token_volumes(spec)}
    if not names:
        return
    spec["volumes"] = [volume for volume in spec["volumes"] if volume["name"] not in names]
    for container in _containers(spec):
        if container.get("volumeMounts"):
            container["volumeMounts"] = [mount for mount in container["volumeMounts"] if mount.get("name") not in names]


def _with_taints_of(spec: Object, live: Object) -> None:
    """Give a Node's spec the present taints of kubelets and controllers, in place of its own."""
    own, present = (
        [
            each
            for each in one.get("taints") or ()
            if str(each.get("key", "")).startswith(CONTROLLERS_TAINTS) is is_theirs
        ]
        for one, is_theirs in ((spec, False), (live, True))
    )
    spec.pop("taints", None)
    if own or present:
        spec["taints"] = own + present


def target(live: Object, then: Object, owners: list[Object] | None = None) -> Object:
    """Return ``live`` with the user's part of ``then``. Fields absent in ``then`` are removed.

    ``owners``: its ownerReferences; None: as they are.
    """
    found: Object = {name: copy.deepcopy(then[name]) for name in then if name not in ("metadata", "status")}
    for name in ("apiVersion", "kind", "status"):
        if name in live:
            found[name] = live[name]
    found["metadata"] = metadata = dict(live["metadata"])
    old = then["metadata"]
    _settle(metadata, "labels", dict(old.get("labels") or {}))
    theirs = {
        name: value for name, value in (metadata.get("annotations") or {}).items() if name in CONTROLLERS_ANNOTATIONS
    }
    ours = {name: value for name, value in (old.get("annotations") or {}).items() if name not in theirs}
    annotations = {name: value for name, value in ours.items() if name not in CONTROLLERS_ANNOTATIONS} | theirs
    _settle(metadata, "annotations", annotations)
    kept = [name for name in metadata.get("finalizers") or () if name in SERVERS_FINALIZERS]
    own = [name for name in old.get("finalizers") or () if name not in SERVERS_FINALIZERS]
    wanted = own + kept
    if sorted(wanted) != sorted(metadata.get("finalizers") or ()):
        _settle(metadata, "finalizers", wanted)
    if owners is not None:
        _settle(metadata, "ownerReferences", owners)
    group = str(then.get("apiVersion", "")).rpartition("/")[0]
    for path in (*_servers_fields(then), *LIVE_FIELDS.get((group, then.get("kind", "")), ())):
        _drop(found, path)
        _copy(found, live, path)
    if then.get("kind") == "Pod" and isinstance(found.get("spec"), dict) and isinstance(live.get("spec"), dict):
        _with_token_of(found["spec"], live["spec"])
    if (group, then.get("kind")) == NODE:
        _with_taints_of(found.setdefault("spec", {}), live.get("spec") or {})
    return {name: found[name] for name in [*live, *(name for name in found if name not in live)] if name in found}


def _settle(metadata: Object, name: str, value: Any) -> None:
    """Set a field of metadata; omit an empty value unless the field is present."""
    if value or name in metadata:
        metadata[name] = value


def _copy(found: Object, live: Object, path: tuple[str, ...]) -> None:
    source: Any = live
    for name in path:
        if not isinstance(source, dict) or name not in source:
            return
        source = source[name]
    for name in path[:-1]:
        found = found.setdefault(name, {})
    found[path[-1]] = source


def patch_of(step: Step) -> list[Object]:
    """Return the JSON patch of an update. The server answers a conflict if the object has changed since the plan."""
    assert step.live is not None
    version = {"op": "replace", "path": "/metadata/resourceVersion", "value": step.live["metadata"]["resourceVersion"]}
    made = [{name: value for name, value in one.operation().items() if name != "old"} for one in step.changes]
    return [version, *made]


def exported(objects: Iterable[tuple[Key, Object]]) -> list[Object]:
    """Return the objects for another cluster, in the order to apply them."""
    wanted = [(key, found) for key, found in objects if not (lost(found) or made_once(found) or finished(found))]
    return [makeable(found) for key, found in sorted(wanted, key=lambda pair: order(pair[0]))]
