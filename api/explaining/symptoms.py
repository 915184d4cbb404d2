"""Symptoms: what is wrong with an object, as its status tells, and the objects on which it depends. Pure.

symptoms(pod)       container web: CrashLoopBackOff, exit code 1 (Error), 4 restarts, since 18:02:11
dependencies(pod)   ConfigMap settings, ServiceAccount web, Node one, …
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

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
        seen += _of_pod(status)
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


def _of_pod(status: Mapping[str, Any]) -> Iterator[Symptom]:
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
