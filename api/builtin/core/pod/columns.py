"""Table columns of pods.

Source: Kubernetes' ``printPod``. The status cell shows the reason that keeps the pod from running: it is picked from
the containers, the conditions and the deletion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from kubechronicle.api.builtin.common.cell_text import Since, condition, is_true
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, name_of, wide_field
from kubechronicle.api.values.objects import ReadOnlyObject

_NOTHING: Final[Mapping[str, Any]] = {}
NODE_UNREACHABLE: Final = "NodeLost"
_TERMINAL: Final = ("Succeeded", "Failed")


class _Summary(NamedTuple):
    """Combined state of a pod's containers.

    ``ready``: number of ready containers.
    ``reason``: text of the status cell.
    ``restarts``: number of restarts.
    ``restarted``: time at which a container last ended, or "".
    """

    ready: int
    reason: str
    restarts: int
    restarted: str


def _terminated(state: Mapping[str, Any]) -> str:
    """Return the reason that a container ended, or else its signal or exit code."""
    reason: str = state.get("reason") or ""
    if reason:
        return reason
    signal = state.get("signal") or 0
    return f"Signal:{signal}" if signal else f"ExitCode:{state.get('exitCode') or 0}"


def _last_end(status: Mapping[str, Any]) -> str:
    ended = (status.get("lastState") or _NOTHING).get("terminated") or _NOTHING
    return ended.get("finishedAt") or ""


def _initializing(spec: ReadOnlyObject, status: ReadOnlyObject, sidecars: set[str]) -> tuple[_Summary, _Summary, bool]:
    """Return (summary of the init containers, of their sidecars, whether the pod still initializes)."""
    ready = restarts = sidecar_restarts = 0
    restarted = sidecar_restarted = reason = ""
    for position, container in enumerate(status.get("initContainerStatuses") or ()):
        restarts += container.get("restartCount") or 0
        restarted = max(restarted, _last_end(container))
        sidecar = container.get("name") in sidecars
        if sidecar:
            sidecar_restarts += container.get("restartCount") or 0
            sidecar_restarted = max(sidecar_restarted, _last_end(container))
        state = container.get("state") or _NOTHING
        ended = state.get("terminated")
        if ended is not None and not ended.get("exitCode"):
            continue
        if sidecar and container.get("started"):
            ready += bool(container.get("ready"))
            continue
        waiting = (state.get("waiting") or _NOTHING).get("reason") or ""
        if ended is not None:
            reason = f"Init:{_terminated(ended)}"
        elif waiting and waiting != "PodInitializing":
            reason = f"Init:{waiting}"
        else:
            reason = f"Init:{position}/{len(spec.get('initContainers') or ())}"
        break
    return (
        _Summary(ready, reason, restarts, restarted),
        _Summary(ready, "", sidecar_restarts, sidecar_restarted),
        bool(reason),
    )


def _running(status: ReadOnlyObject, begun: _Summary, reason: str) -> _Summary:
    """Return the summary with the ordinary containers added; the first one that does not run gives the reason."""
    ready, restarts, restarted = begun.ready, begun.restarts, begun.restarted
    running = False
    for container in reversed(status.get("containerStatuses") or ()):
        restarts += container.get("restartCount") or 0
        restarted = max(restarted, _last_end(container))
        state = container.get("state") or _NOTHING
        waiting = (state.get("waiting") or _NOTHING).get("reason")
        if waiting:
            reason = waiting
        elif state.get("terminated") is not None:
            reason = _terminated(state["terminated"])
        elif container.get("ready") and state.get("running") is not None:
            running = True
            ready += 1
    if reason == "Completed" and running:
        reason = "Running" if is_true(status.get("conditions"), "Ready") else "NotReady"
    return _Summary(ready, reason, restarts, restarted)


def _summary(pod: ReadOnlyObject, spec: ReadOnlyObject, status: ReadOnlyObject, sidecars: set[str]) -> _Summary:
    phase = status.get("phase") or ""
    reason = status.get("reason") or phase
    scheduled = condition(status.get("conditions"), "PodScheduled")
    if scheduled is not None and scheduled.get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    summary, sidecar_summary, initializing = _initializing(spec, status, sidecars)
    if not initializing or is_true(status.get("conditions"), "Initialized"):
        summary = _running(status, sidecar_summary, summary.reason or reason)
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == NODE_UNREACHABLE:
            return summary._replace(reason="Unknown")
        if phase not in _TERMINAL:
            return summary._replace(reason="Terminating")
    return summary


def _gates(spec: ReadOnlyObject, status: ReadOnlyObject) -> str:
    gates = spec.get("readinessGates")
    if not gates:
        return "<none>"
    met = sum(is_true(status.get("conditions"), gate.get("conditionType")) for gate in gates)
    return f"{met}/{len(gates)}"


def _first_ip(addresses: Iterable[ReadOnlyObject] | None) -> str:
    return next((address.get("ip") or "" for address in addresses or ()), "")


def pod_cells(pod: ReadOnlyObject, since: Since) -> list[Any]:
    """Return a pod's cells."""
    spec: ReadOnlyObject = pod.get("spec") or _NOTHING
    status: ReadOnlyObject = pod.get("status") or _NOTHING
    sidecars = {
        container.get("name", "")
        for container in spec.get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    }
    summary = _summary(pod, spec, status, sidecars)
    restarts = str(summary.restarts)
    if summary.restarts and summary.restarted:
        restarts += f" ({since(summary.restarted)} ago)"
    return [
        name_of(pod),
        f"{summary.ready}/{len(spec.get('containers') or ()) + len(sidecars)}",
        summary.reason,
        restarts,
        age_of(pod, since),
        _first_ip(status.get("podIPs")) or "<none>",
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        _gates(spec, status),
    ]


_COMPLETED: Final[Mapping[str, str]] = {
    "Succeeded": "The pod has completed successfully.",
    "Failed": "The pod failed.",
}


def pod_conditions(pod: ReadOnlyObject) -> list[dict[str, Any]] | None:
    """Return the row condition of a finished pod, so that clients can hide its row."""
    phase = (pod.get("status") or _NOTHING).get("phase") or ""
    message = _COMPLETED.get(phase)
    if message is None:
        return None
    return [{"type": "Completed", "status": "True", "reason": phase, "message": message}]


POD: Final = Printer(
    (
        NAME,
        Column("Ready", text="The aggregate readiness state of this pod for accepting traffic."),
        Column("Status", text="The aggregate status of the containers in this pod."),
        Column(
            "Restarts",
            text="The number of times the containers in this pod have been restarted and when the last container in "
            "this pod has restarted.",
        ),
        AGE,
        wide_field("IP", "core.v1.PodStatus.podIP"),
        wide_field("Node", "core.v1.PodSpec.nodeName"),
        wide_field("Nominated Node", "core.v1.PodStatus.nominatedNodeName"),
        wide_field("Readiness Gates", "core.v1.PodSpec.readinessGates"),
    ),
    pod_cells,
    conditions=pod_conditions,
)
