"""Doing what a plan of api/history/restore_plan.py says, one object after the other, by the ordinary API."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kubechronicle.api.history.differences import differences
from kubechronicle.api.history.restore_plan import Key, Step, makeable, patch_of, target
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.client import ApiError, Client
from kubechronicle.ops.client.kinds import Kind
from kubechronicle.ops.client.output import Progress
from kubechronicle.ops.errors import OperatorError

MANAGER: Final = {"fieldManager": "kubechronicle-restore"}
JSON_PATCH: Final = "application/json-patch+json"
# How often what somebody else changes at the same time is tried again.
TRIES: Final = 4
# Seconds between looks at what comes or goes by itself.
PAUSE: Final = 0.25
# Seconds between looks at what keeps something that is to go.
LOOK: Final = 3.0
# Seconds within which a kind is served once its definition is there.
DEFINED: Final = 30.0


@dataclass(frozen=True, slots=True)
class Result:
    step: Step
    outcome: str
    failed: bool = False


class Restorer:
    """``timeout``: seconds to wait for an object that is still being deleted."""

    def __init__(self, client: Client, kinds: Mapping[tuple[str, str], Kind], *, timeout: float) -> None:
        self._client, self._kinds, self._timeout = client, kinds, timeout
        self._defined: set[tuple[str, str]] = set()  # group and kind of what was defined just now

    def do(self, step: Step) -> Result:
        """Never raises for what befalls one object."""
        try:
            return Result(step, self._does[step.action](self, step))
        except ApiError as error:
            return Result(step, f"failed: {error.message}", failed=True)
        except (_Stuck, OperatorError) as error:
            return Result(step, f"failed: {error}", failed=True)

    def _kind(self, key: Key) -> Kind:
        return self._kinds[key[0], key[1]]

    def _path(self, key: Key, *, named: bool = True) -> str:
        return self._kind(key).path(key[2], key[3] if named else "")

    # -- create -------------------------------------------------------------------------------------------------------

    def _create(self, step: Step) -> str:
        assert step.then is not None
        if step.live is not None:  # which is being deleted
            try:
                wait_until_gone(self._client, self._path(step.key), self._timeout)
            except OperatorError as error:
                raise _Stuck(str(error)) from None
        body = makeable(step.then, addresses=True)
        lost = self._belonging(body, step.key)
        try:
            outcome = self._made(step, body)
        except ApiError as error:
            if error.reason == "AlreadyExists":
                return self._there_already(step)
            without = _without_taken(body, error)
            if without is None:
                raise
            self._made(step, body)
            outcome = f"created, without {without}, which is taken"
        if step.key[1] == "CustomResourceDefinition":
            spec = step.then["spec"]
            self._defined.add((spec["group"], spec["names"]["kind"]))
        return outcome + (f", without its owner {lost}, which is gone" if lost else "")

    def _made(self, step: Step, body: Object) -> str:
        path = self._path(step.key, named=False)
        end = time.monotonic() + DEFINED
        while True:
            try:
                self._client.ask("POST", path, MANAGER, body)
            except ApiError as error:
                if error.code != 404 or step.key[:2] not in self._defined or time.monotonic() > end:
                    raise
                time.sleep(PAUSE)
            else:
                return "created"

    def _there_already(self, step: Step) -> str:
        """Somebody was quicker, as a controller is with what every namespace has."""
        live = self._client.get(self._path(step.key))
        assert step.then is not None
        changes = differences(live, target(live, step.then))
        if not changes:
            return "is there already"
        return self._update(Step("update", step.key, step.then, live, tuple(changes)))

    def _belonging(self, body: Object, key: Key) -> str:
        """Let it belong to the owners there are now: with those that are gone, it would be collected at once. Returns
        the owners it has lost."""
        references = body["metadata"].pop("ownerReferences", None)
        kept, lost = [], []
        for reference in references or ():
            uid = self._uid(reference, key[2])
            if uid:
                kept.append({**reference, "uid": uid})
            else:
                lost.append(f"{reference.get('kind')}/{reference.get('name')}")
        if kept:
            body["metadata"]["ownerReferences"] = kept
        return ", ".join(lost)

    def _uid(self, reference: Mapping[str, Any], namespace: str) -> str:
        group = str(reference.get("apiVersion", "")).rpartition("/")[0]
        kind = self._kinds.get((group, str(reference.get("kind"))))
        found = self._client.get_if(kind.path(namespace, str(reference.get("name")))) if kind is not None else None
        return str(found["metadata"]["uid"]) if found is not None else ""

    # -- update, delete -----------------------------------------------------------------------------------------------

    def _update(self, step: Step) -> str:
        for attempt in range(TRIES):
            try:
                self._client.ask("PATCH", self._path(step.key), MANAGER, patch_of(step), content_type=JSON_PATCH)
            except ApiError as error:
                if error.reason != "Conflict":
                    raise
                if attempt == TRIES - 1:
                    raise _Stuck(f"somebody else goes on changing it: {error.message}") from None
            else:
                return "put back"
            live = self._client.get(self._path(step.key))
            assert step.then is not None
            changes = differences(live, target(live, step.then))
            if not changes:
                return "is as it was already"
            step = Step("update", step.key, step.then, live, tuple(changes))
        raise AssertionError("unreachable")

    def _delete(self, step: Step) -> str:
        assert step.live is not None
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": step.live["metadata"]["uid"]}}
        try:
            self._client.ask("DELETE", self._path(step.key), None, options)
        except ApiError as error:
            if error.code != 404:
                raise
            return "is gone already"
        return "deleted"

    _does: Final[Mapping[str, Callable[[Restorer, Step], str]]] = {
        "create": _create,
        "update": _update,
        "delete": _delete,
    }


class _Stuck(Exception):
    """One object can't be brought back."""


def _without_taken(body: Object, error: ApiError) -> str | None:
    """Take out what the server says somebody else has by now; the name of it, None if that is not what it says."""
    if body.get("kind") != "Service" or error.code not in (409, 422) or "allocated" not in error.message:
        return None
    spec = body["spec"]
    if "clusterIP" in error.message and "clusterIP" in spec:
        address = spec.pop("clusterIP")
        spec.pop("clusterIPs", None)
        return f"cluster IP {address}"
    ports = [port.pop("nodePort") for port in spec.get("ports") or () if "nodePort" in port]
    return f"node port {', '.join(map(str, ports))}" if ports else None


def wait_until_gone(client: Client, path: str, timeout: float, look: Callable[[], str] = str) -> None:
    """OperatorError: it is there still. ``look`` finds out what keeps it; else it is what the object says of itself."""
    end, hindrance = time.monotonic() + timeout, ""
    next_look = time.monotonic() + LOOK
    name = path.rpartition("/")[2]
    with Progress(f"waiting for {name} to be gone") as progress:
        while True:
            found = client.get_if(path)
            if found is None or not found["metadata"].get("deletionTimestamp"):
                return
            now = time.monotonic()
            if now > min(end, next_look):
                hindrance, next_look = look() or _hindrance(found), now + LOOK
            if now > end:
                raise OperatorError(f"{name} is still being deleted after {timeout:g} s{hindrance and ': '}{hindrance}")
            progress.step(hindrance)
            time.sleep(PAUSE)


def _hindrance(found: Object) -> str:
    """What keeps it: conditions of a namespace, or finalizers."""
    conditions = (found.get("status") or {}).get("conditions") or ()
    told = [str(each.get("message")) for each in conditions if each.get("status") == "True" and each.get("message")]
    finalizers = found["metadata"].get("finalizers") or ()
    return "; ".join(told) or (f"finalizers {', '.join(finalizers)}" if finalizers else "")
