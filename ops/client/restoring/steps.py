"""Carry out or try a plan of api/history/restore_plan.py through the Kubernetes API, one object at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubechronicle.api.history.differences import Difference, differences
from kubechronicle.api.history.restore_plan import Step, held, makeable, patch_of, target
from kubechronicle.api.history.restore_rules import CONTROLLERS
from kubechronicle.api.meta.owners import Key, owner_references, settle_owners
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.client import ApiError, Client
from kubechronicle.ops.client.kinds import Kind
from kubechronicle.ops.client.output import Progress
from kubechronicle.ops.errors import OperatorError

MANAGER: Final = {"fieldManager": "kubechronicle-restore"}
DRY_RUN: Final = {"dryRun": "All"}
JSON_PATCH: Final = "application/json-patch+json"
# Attempts to update an object that another client changes at the same time.
TRIES: Final = 4
# Seconds between two requests while waiting.
POLL_INTERVAL: Final = 0.25
# Seconds between two searches for the reason of a blocked deletion.
SEARCH_INTERVAL: Final = 3.0
# Seconds to wait until the server serves a new CustomResourceDefinition.
DEFINITION_TIMEOUT: Final = 30.0


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one step, in words. ``lost``: the parts that could not be restored, each as a sentence."""

    step: Step
    outcome: str
    failed: bool = False
    lost: tuple[str, ...] = ()


class Restorer:
    """Carries out steps.

    ``timeout``: seconds to wait for an object in deletion
    ``dry_run``: changes nothing
    ``remerges``: compares an object again that has changed since the plan, instead of leaving it
    ``on_wait``: called with a remark before a wait
    ``updated``: the outcome of an update, in words
    """

    def __init__(
        self,
        client: Client,
        kinds: Mapping[tuple[str, str], Kind],
        *,
        timeout: float,
        dry_run: bool = False,
        remerges: bool = True,
        on_wait: Callable[[str], None] = lambda _: None,
        updated: str = "reverted",
    ) -> None:
        self._updated = updated
        self._client, self._kinds, self._timeout, self._on_wait = client, kinds, timeout, on_wait
        self._lost: list[str] = []
        self._tries = TRIES if remerges else 1
        self.options = MANAGER | DRY_RUN if dry_run else MANAGER
        """The parameters of each request."""
        self._new_kinds: set[tuple[str, str]] = set()
        """Group and kind of each CustomResourceDefinition created by this restorer."""

    def do(self, step: Step) -> Result:
        """Carry out one step. A failure is in the result, never raised."""
        self._lost = []
        self._client = self._client.replaced(cause=step.cause)
        try:
            outcome = self._actions[step.action](self, step)
            return Result(step, outcome, lost=tuple(self._lost))
        except ApiError as error:
            return Result(step, f"failed: {error.message}", failed=True)
        except (_Failed, OperatorError) as error:
            return Result(step, f"failed: {error}", failed=True)

    def rejection(self, step: Step) -> ApiError | None:
        """Try a step by a dry run, and return the server's rejection. That of a ``replace`` tries the new object."""
        try:
            if step.action == "update":
                self._client.request(
                    "PATCH", self._path(step.key), self.options, patch_of(step), content_type=JSON_PATCH
                )
            elif step.action == "delete":
                self._request_deletion(step)
            else:
                assert step.then is not None
                body = makeable(step.then, addresses=True)
                self._settle_owners(body, step.key)
                self._client.request("POST", self._kind(step.key).path(step.key[2]), self.options, body)
        except ApiError as error:
            if error.reason in ("AlreadyExists", "Conflict") or "allocated" in error.message:
                return None  # handled when the step is carried out
            return error
        return None

    def change_of(self, step: Step) -> tuple[Object, tuple[str, ...]]:
        """Return a step as the change of a Transaction, and the parts that it cannot restore. ApiError.

        {}: the object is already as it was.
        """
        kind, (_, _, namespace, name) = self._kind(step.key), step.key
        named = {"apiVersion": kind.api_version, "kind": kind.kind, "name": name}
        named |= {"namespace": namespace} if namespace else {}
        if step.action == "delete":
            options = _deletion_options(step)
            return {"verb": "delete", **named, "preconditions": options["preconditions"]}, ()
        if step.action == "update":
            step = self._with_owners(step)
            change = {"verb": "patch", **named, "patchType": "json", "patch": patch_of(step)}
            return change if step.changes else {}, ()
        assert step.then is not None
        body = makeable(step.then, addresses=True)
        gone = self._settle_owners(body, step.key)
        return {"verb": "create", "object": body}, (f"its owner {gone} is gone",) if gone else ()

    def outcome_of(self, outcome: str) -> str:
        """Return the outcome of a change in a Transaction in the words of a step."""
        words = {"changed": self._updated, "unchanged": "is already as it was", "marked": "deleted"}
        return words.get(outcome, outcome)

    def _kind(self, key: Key) -> Kind:
        return self._kinds[key[0], key[1]]

    def _path(self, key: Key) -> str:
        return self._kind(key).path(key[2], key[3])

    # -- create -------------------------------------------------------------------------------------------------------

    def _create(self, step: Step) -> str:
        assert step.then is not None
        if step.live is not None:  # it is in deletion
            self._on_wait(
                f"waiting up to {self._timeout:g} s for the end of {object_name(step.key)}{_held_by(step.live)}"
            )
            try:
                wait_until_gone(self._client, self._path(step.key), self._timeout)
            except OperatorError as error:
                raise _Failed(str(error)) from None
        body = makeable(step.then, addresses=True)
        lost_owners = self._settle_owners(body, step.key)
        taken: list[str] = []
        while True:
            try:
                self._post(step, body)
                break
            except ApiError as error:
                if error.reason == "AlreadyExists" and (found := self._found_existing(step)):
                    return found
                removed = _remove_taken(body, error)
                if removed is None:
                    raise
                taken.append(removed)
        outcome = "created" + (f", without {' and '.join(taken)}, which {_are(taken)} taken" if taken else "")
        self._lost += [f"{each} is taken: it has another" for each in taken]
        if step.key[1] == "CustomResourceDefinition":
            spec = step.then["spec"]
            self._new_kinds.add((spec["group"], spec["names"]["kind"]))
        if lost_owners:
            self._lost.append(f"its owner {lost_owners} is gone")
        return outcome + (f", without its owner {lost_owners}, which is gone" if lost_owners else "")

    def _post(self, step: Step, body: Object) -> None:
        """Create the object. Retry on 404 until the server serves a new kind."""
        path = self._kind(step.key).path(step.key[2])
        deadline = time.monotonic() + DEFINITION_TIMEOUT
        while True:
            try:
                self._client.request("POST", path, self.options, body)
                return
            except ApiError as error:
                if error.code != 404 or step.key[:2] not in self._new_kinds or time.monotonic() > deadline:
                    raise
            time.sleep(POLL_INTERVAL)

    def _found_existing(self, step: Step) -> str:
        """Update an object that a controller created first, such as a namespace's default ServiceAccount.

        Return "" for one that differs, if objects that have changed since the plan stay.
        """
        live = self._client.get(self._path(step.key))
        assert step.then is not None
        changes = self._differences(live, step)
        if not changes:
            return "already exists"
        if self._tries == 1:
            return ""
        return self._update(Step("update", step.key, step.then, live, tuple(changes)))

    def _settle_owners(self, body: Object, key: Key) -> str:
        """Refer to the owners by their present uids, and return those that are gone."""
        return ", ".join(settle_owners(body, lambda reference: self._present_uid(reference, key[2])))

    def _present_uid(self, reference: Mapping[str, Any], namespace: str) -> str:
        group = str(reference.get("apiVersion", "")).rpartition("/")[0]
        kind = self._kinds.get((group, str(reference.get("kind"))))
        owner = self._client.get_if(kind.path(namespace, str(reference.get("name")))) if kind is not None else None
        return str(owner["metadata"]["uid"]) if owner is not None else ""

    def _rebind(self, step: Step) -> str:
        """Bind a volume to the claim that was created again."""
        assert step.live is not None
        assert step.then is not None
        claim = self._kinds["", "PersistentVolumeClaim"]
        live = self._client.get(claim.path(step.then["metadata"]["namespace"], step.then["metadata"]["name"]))
        change = step.changes[0]
        bound = Difference(change.op, change.path, change.field, change.old, live["metadata"]["uid"])
        self._request_patch(step._replace(changes=(bound,)))
        return "bound to the claim that was created again"

    # -- update, delete -----------------------------------------------------------------------------------------------

    def _differences(self, live: Object, step: Step) -> list[Difference]:
        """Return the changes of a present object towards its past state, with the present uids of its owners."""
        assert step.then is not None
        owners = owner_references(live, step.then, lambda reference: self._present_uid(reference, step.key[2]))
        return differences(live, target(live, step.then, owners))

    def _with_owners(self, step: Step) -> Step:
        """Return an update with the present uids of owners, if it changes owners."""
        if not any(each.path[:2] == ("metadata", "ownerReferences") for each in step.changes):
            return step
        assert step.live is not None
        return step._replace(changes=tuple(self._differences(step.live, step)))

    def _update(self, step: Step) -> str:
        step = self._with_owners(step)
        if not step.changes:
            return "is already as it was"
        for attempt in range(self._tries):
            try:
                self._request_patch(step)
            except ApiError as error:
                if error.reason != "Conflict":
                    raise
                if attempt == self._tries - 1:
                    raise _Failed(f"another client has changed it meanwhile: {error.message}") from None
            else:
                return self._updated
            live = self._client.get(self._path(step.key))
            changes = self._differences(live, step)
            if not changes:
                return "is already as it was"
            step = Step("update", step.key, step.then, live, tuple(changes))
        raise AssertionError("unreachable")

    def _request_patch(self, step: Step) -> None:
        self._client.request("PATCH", self._path(step.key), self.options, patch_of(step), content_type=JSON_PATCH)

    def _delete(self, step: Step) -> str:
        for _ in range(TRIES):
            try:
                self._request_deletion(step)
            except ApiError as error:
                if error.code == 404:
                    return "is already gone"
                if error.reason != "Conflict":
                    raise
            else:
                return "deleted"
            live = self._client.get_if(self._path(step.key))
            if live is None:
                return "is already gone"
            assert step.live is not None
            if not _is_unchanged(step.live, live):
                raise _Failed("another client has changed it since the plan: it is not deleted")
            step = step._replace(live=live)
        raise _Failed("it changes again and again: it is not deleted")

    def _request_deletion(self, step: Step) -> None:
        """Ask to delete the very object that the plan has shown."""
        options = _deletion_options(step)
        if step.action == "replace" and step.key[:2] not in CONTROLLERS:
            options["propagationPolicy"] = "Orphan"  # its dependents are no part of the plan
        if "dryRun" in self.options:  # in the body: with one, the server ignores the parameters
            options["dryRun"] = [self.options["dryRun"]]
        self._client.request("DELETE", self._path(step.key), None, options)

    def _replace(self, step: Step) -> str:
        """Delete an object that cannot be changed in place, and create it as it was."""
        self._delete(step)
        wait_until_gone(self._client, self._path(step.key), self._timeout)
        try:
            return f"deleted, and {self._create(Step('create', step.key, step.then))}"
        except ApiError as error:
            reason = error.message
        try:
            self._create(Step("create", step.key, step.live))
        except ApiError as error:
            raise _Failed(f"it was deleted, but not created again: {reason}; {error.message}") from None
        raise _Failed(f"it could not be created as it was: {reason}; so it is as before this run")

    _actions: Final[Mapping[str, Callable[[Restorer, Step], str]]] = {
        "create": _create,
        "update": _update,
        "delete": _delete,
        "replace": _replace,
        "rebind": _rebind,
    }


def _deletion_options(step: Step) -> Object:
    """Return the options that delete the very object which the plan has shown."""
    assert step.live is not None
    metadata = step.live["metadata"]
    preconditions = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}


def _is_unchanged(planned: Object, live: Object) -> bool:
    """Tell whether an object is the one of the plan, and nothing but its status has changed."""
    return planned["metadata"]["uid"] == live["metadata"]["uid"] and all(
        each.path[0] == "status" or each.path[:2] == ("metadata", "generation") for each in differences(planned, live)
    )


class _Failed(Exception):
    """One object can't be restored."""


def object_name(key: Key) -> str:
    """Return the name of an object in a plan: ``deployment.apps/web``."""
    group, kind, _, name = key
    return f"{kind.lower()}{f'.{group}' if group else ''}/{name}"


def _are(names: Sequence[str]) -> str:
    return "are" if len(names) > 1 else "is"


def _held_by(live: Object) -> str:
    finalizers = held(live)
    return f", held by the finalizers {finalizers}" if finalizers else ""


def _remove_taken(body: Object, error: ApiError) -> str | None:
    """Remove the addresses or ports that another Service has by now.

    Return their names, or None if the server rejected the object for another reason.
    """
    if body.get("kind") != "Service" or error.code not in (409, 422) or "allocated" not in error.message:
        return None
    spec = body["spec"]
    if "clusterIP" in error.message and "clusterIP" in spec:
        address = spec.pop("clusterIP")
        spec.pop("clusterIPs", None)
        return f"cluster IP {address}"
    ports = [port.pop("nodePort") for port in spec.get("ports") or () if "nodePort" in port]
    return f"node port {', '.join(map(str, ports))}" if ports else None


def wait_until_gone(client: Client, path: str, timeout: float, find_blockers: Callable[[], str] = str) -> None:
    """Wait until an object in deletion is gone. Raises OperatorError, with the reason, after ``timeout`` seconds.

    ``find_blockers`` returns the reason; if it returns "", the reason is taken from the object.
    """
    deadline, reason = time.monotonic() + timeout, ""
    next_search = time.monotonic() + SEARCH_INTERVAL
    name = path.rpartition("/")[2]
    with Progress(f"waiting for the deletion of {name}") as progress:
        while True:
            obj = client.get_if(path)
            if obj is None or not obj["metadata"].get("deletionTimestamp"):
                return
            now = time.monotonic()
            if now > min(deadline, next_search):
                reason, next_search = find_blockers() or _blockers_of(obj), now + SEARCH_INTERVAL
            if now > deadline:
                raise OperatorError(f"{name} is still being deleted after {timeout:g} s{reason and ': '}{reason}")
            progress.step(reason)
            time.sleep(POLL_INTERVAL)


def _blockers_of(obj: Object) -> str:
    """Return the conditions of a namespace in deletion, or the finalizers of another object."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    messages = [str(each.get("message")) for each in conditions if each.get("status") == "True" and each.get("message")]
    finalizers = obj["metadata"].get("finalizers") or ()
    return "; ".join(messages) or (f"finalizers {', '.join(finalizers)}" if finalizers else "")
