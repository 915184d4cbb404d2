"""States: an object's condition in one word, for rows and lanes that show many objects at once. Pure.

state_of(pod)    ready, waiting, crash, failed, done, ending
symptoms.py has the sentences about one object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from kubechronicle.api.explaining.symptoms import FINE
from kubechronicle.api.values.objects import ReadOnlyObject

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
