"""States: an object's condition in one word, for rows and lanes that show many objects at once. Pure.

    state_of(pod)       ready, waiting, crash, failed, done, ending

Symptoms: the sentences about one object, by its status, and the objects on which it depends.

    symptoms(pod)       container web: CrashLoopBackOff, exit code 1 (Error), 4 restarts, since 18:02:11
    dependencies(pod)   ConfigMap settings, ServiceAccount web, Node one, …
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from kubechronicle.api.access.pod_references import references
from kubechronicle.api.values.objects import ReadOnlyObject

FINE: Final = frozenset(("Completed", "ContainerCreating", "PodInitializing"))
"""Reasons of containers that wait or have ended as they should."""
GOOD_CONDITIONS: Final = frozenset((
    "Ready", "Available", "Established", "NamesAccepted", "PodScheduled", "Initialized", "ContainersReady",
    "Progressing",
    "Accepted", "Programmed", "Synced", "Bound", "Approved", "Reconciled",
))  # fmt: skip
"""Conditions that are True if all is well."""
BAD_CONDITIONS: Final = frozenset((
    "Failed", "Degraded", "Stalled", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable",
    "ReplicaFailure", "Dangling", "NonStructuralSchema",
))  # fmt: skip
FOLLOWS: Final = frozenset(("Ready", "ContainersReady"))
"""Conditions of a Pod that only repeat what its containers tell."""


class Symptom(NamedTuple):
    """``since``: RFC 3339, "" if the status does not tell."""

    text: str
    since: str = ""


class Dependency(NamedTuple):
    """An object that another one names. ``resource``: with its group. ``namespaced``: in the namespace of the other."""

    resource: str
    name: str
    namespaced: bool
    relation: str


def symptoms(found: ReadOnlyObject) -> list[Symptom]:
    """Return what is wrong with an object; empty: its status tells of nothing."""
    kind, status, metadata = found.get("kind"), found.get("status") or {}, found.get("metadata") or {}
    seen: list[Symptom] = []
    if marked := metadata.get("deletionTimestamp"):
        held = ", ".join(metadata.get("finalizers") or ())
        seen.append(Symptom("it is being deleted" + (f", held by the finalizers {held}" if held else ""), str(marked)))
    if kind == "Pod":
        seen += _symptoms_of_pod(status)
    elif kind == "PersistentVolumeClaim" and status.get("phase") in ("Pending", "Lost"):
        seen.append(Symptom(f"the claim is {status['phase'].lower()}", str(metadata.get("creationTimestamp", ""))))
    spec = found.get("spec")
    wanted = spec.get("replicas") if isinstance(spec, Mapping) else None
    if isinstance(wanted, int) and "replicas" in status and int(status.get("readyReplicas") or 0) < wanted:
        seen.append(Symptom(f"{int(status.get('readyReplicas') or 0)} of {wanted} replicas are ready"))
    elif wanted == 0:
        seen.append(Symptom("it has no replicas: spec.replicas is 0"))
    told = bool(seen) and kind == "Pod"
    return [*seen, *_of_conditions(status.get("conditions"), without=FOLLOWS if told else frozenset())]


def _symptoms_of_pod(status: Mapping[str, Any]) -> Iterator[Symptom]:
    if status.get("phase") == "Failed":
        text = ": ".join(filter(None, ("the Pod has failed", status.get("reason"), status.get("message"))))
        yield Symptom(text)
    for each in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        yield from _of_container(each)


def _of_container(container: Mapping[str, Any]) -> Iterator[Symptom]:
    state, last = container.get("state") or {}, (container.get("lastState") or {}).get("terminated") or {}
    waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
    parts = []
    if waiting and waiting.get("reason") not in FINE:
        parts.append(str(waiting.get("reason") or "waits"))
    death = ended if ended.get("exitCode") else last if parts or container.get("restartCount") else {}
    if death.get("exitCode"):
        parts.append(f"exit code {death['exitCode']}" + (f" ({death['reason']})" if death.get("reason") else ""))
    if restarts := container.get("restartCount"):
        parts.append(f"{restarts} restart{'' if restarts == 1 else 's'}")
    if not parts:
        return
    for message in (waiting.get("message"), death.get("message")):
        if message:
            parts.append(str(message).strip().splitlines()[-1][:200])
    yield Symptom(f"container {container.get('name')}: {', '.join(parts)}", str(death.get("startedAt") or ""))


def _of_conditions(conditions: Any, *, without: frozenset[str]) -> Iterator[Symptom]:
    for each in conditions if isinstance(conditions, Sequence) else ():
        if not isinstance(each, Mapping) or each.get("type") in without or each.get("reason") == "PodCompleted":
            continue
        kind, state = each.get("type"), each.get("status")
        if (kind in GOOD_CONDITIONS and state in ("False", "Unknown")) or (kind in BAD_CONDITIONS and state == "True"):
            why = ": ".join(str(each[part]) for part in ("reason", "message") if each.get(part))
            yield Symptom(
                f"{kind} is {state}" + (f" ({why})" if why else ""), str(each.get("lastTransitionTime") or "")
            )


# -- dependencies -----------------------------------------------------------------------------------------------------


def dependencies(found: ReadOnlyObject) -> list[Dependency]:
    """Return the objects that an object names in its spec, without its owners."""
    seen = dict.fromkeys(_dependencies(found))
    return [each for each in seen if each.name]


def _dependencies(found: ReadOnlyObject) -> Iterator[Dependency]:
    kind, spec = found.get("kind"), found.get("spec")
    if kind in ("RoleBinding", "ClusterRoleBinding"):
        role: Mapping[str, Any] = found.get("roleRef") or {}
        is_cluster = role.get("kind") == "ClusterRole"
        plural = f"{'clusterroles' if is_cluster else 'roles'}.rbac.authorization.k8s.io"
        yield Dependency(plural, str(role.get("name", "")), not is_cluster, "its role")
    if not isinstance(spec, Mapping):
        return
    pod = found if kind == "Pod" else _template(spec)
    if pod is not None:
        yield from _of_pod_spec(pod)
    elif kind == "PersistentVolumeClaim":
        yield Dependency("storageclasses.storage.k8s.io", str(spec.get("storageClassName") or ""), False, "its class")
        yield Dependency("persistentvolumes", str(spec.get("volumeName") or ""), False, "its volume")
    elif kind == "HorizontalPodAutoscaler":
        target = spec.get("scaleTargetRef") or {}
        group = str(target.get("apiVersion", "")).rpartition("/")[0]
        resource = f"{str(target.get('kind', '')).lower()}s{f'.{group}' if group else ''}"
        yield Dependency(resource, str(target.get("name", "")), True, "scaled by it")
    elif kind == "Ingress":
        yield Dependency(
            "ingressclasses.networking.k8s.io", str(spec.get("ingressClassName") or ""), False, "its class"
        )
        for rule in spec.get("rules") or ():
            for path in ((rule.get("http") or {}).get("paths")) or ():
                service = ((path.get("backend") or {}).get("service")) or {}
                yield Dependency("services", str(service.get("name", "")), True, "its backend")
        for each in spec.get("tls") or ():
            yield Dependency("secrets", str(each.get("secretName") or ""), True, "its certificate")


def _template(spec: Mapping[str, Any]) -> ReadOnlyObject | None:
    """Return the template of Pods in a spec; None: it has none."""
    job = spec.get("jobTemplate")
    template = ((job or {}).get("spec") or {}).get("template") if isinstance(job, Mapping) else spec.get("template")
    if not isinstance(template, Mapping) or not isinstance(template.get("spec"), Mapping):
        return None
    return {"metadata": template.get("metadata") or {}, "spec": template["spec"]}


def _of_pod_spec(pod: ReadOnlyObject) -> Iterator[Dependency]:
    spec = pod.get("spec") or {}
    for resource, name in sorted(references({"metadata": pod.get("metadata") or {}, **pod})):
        yield Dependency(resource, name, True, "used by it")
    yield Dependency("nodes", str(spec.get("nodeName") or ""), False, "its node")
    yield Dependency("priorityclasses.scheduling.k8s.io", str(spec.get("priorityClassName") or ""), False, "its class")
    yield Dependency("runtimeclasses.node.k8s.io", str(spec.get("runtimeClassName") or ""), False, "its class")


# -- the origin of a change -------------------------------------------------------------------------------------------

_SOURCE: Final = re.compile(r"(^|[./_-])(git-?)?(commit|sha|revision|change-cause)([._-](sha|id|hash))?$", re.I)
_COMMIT: Final = re.compile(r"(^|[^0-9a-z])([0-9a-f]{7,40}|[0-9a-f]{64})([^0-9a-z]|$)")


def commit_of(found: ReadOnlyObject | None) -> tuple[str, str]:
    """Return the commit that an object comes from, and the annotation or label that says so; "" if none does.

    Tools of GitOps and CI write one: ``kustomize.toolkit.fluxcd.io/…``, ``app.example.com/git-commit: 3f2a1bc``.
    """
    metadata = (found or {}).get("metadata") or {}
    for where in ("annotations", "labels"):
        for name, value in (metadata.get(where) or {}).items():
            match = _COMMIT.search(str(value)) if _SOURCE.search(name) else None
            if match is not None:
                return match[2], name
    return "", ""


READY: Final = "ready"
WAITING: Final = "waiting"
CRASH: Final = "crash"
FAILED: Final = "failed"
DONE: Final = "done"
ENDING: Final = "ending"
ZERO: Final = "zero"
EXISTS: Final = "exists"
GONE: Final = "gone"
STATES: Final = (EXISTS, READY, WAITING, CRASH, FAILED, DONE, ENDING, ZERO, GONE)
"""All states; an answer names them by their places."""


def _of_pod(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    phase = status.get("phase")
    if phase in ("Failed", "Succeeded"):
        return FAILED if phase == "Failed" else DONE
    for each in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        state = each.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
        if ended.get("exitCode") or (waiting.get("reason") and waiting["reason"] not in FINE):
            return CRASH
    return READY if _is_true(status, "Ready") else WAITING


def _of_replicas(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    wanted, ready = spec.get("replicas"), status.get("readyReplicas") or 0
    if wanted == 0:
        return ZERO
    return READY if isinstance(wanted, int) and isinstance(ready, int) and ready >= wanted else WAITING


def _of_daemons(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    wanted, ready = status.get("desiredNumberScheduled") or 0, status.get("numberReady") or 0
    if not wanted:
        return ZERO
    return READY if ready >= wanted else WAITING


def _of_job(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    if _is_true(status, "Failed"):
        return FAILED
    return DONE if _is_true(status, "Complete") else READY if status.get("ready") else WAITING


def _of_node(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    if spec.get("unschedulable"):
        return ZERO
    return READY if _is_true(status, "Ready") else WAITING


def _of_phase(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    phases = {"Bound": READY, "Available": READY, "Lost": FAILED, "Failed": FAILED}
    return phases.get(str(status.get("phase")), WAITING)


KINDS: Final[Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], str]]] = {
    "pods": _of_pod,
    "deployments.apps": _of_replicas,
    "statefulsets.apps": _of_replicas,
    "replicasets.apps": _of_replicas,
    "replicationcontrollers": _of_replicas,
    "daemonsets.apps": _of_daemons,
    "jobs.batch": _of_job,
    "nodes": _of_node,
    "persistentvolumeclaims": _of_phase,
    "persistentvolumes": _of_phase,
}
"""Kinds whose status tells a state. Each other object just exists."""


def state_of(resource: str, found: ReadOnlyObject) -> str:
    """Return the state of an object that exists."""
    if (found.get("metadata") or {}).get("deletionTimestamp"):
        return ENDING
    spec, status = found.get("spec"), found.get("status")
    of_kind = KINDS.get(resource)
    if of_kind is None or not isinstance(spec, Mapping):
        return EXISTS
    return of_kind(spec, status if isinstance(status, Mapping) else {})


def stored_state(resource: str, body: bytes) -> str:
    """Return the state of an object as the log holds it. Most kinds need no decoding."""
    if resource in KINDS:
        return state_of(resource, orjson.loads(body))
    return ENDING if b'"deletionTimestamp":' in body else EXISTS


def _is_true(status: Mapping[str, Any], kind: str) -> bool:
    conditions = status.get("conditions") or ()
    return any(each.get("type") == kind and each.get("status") == "True" for each in conditions)
