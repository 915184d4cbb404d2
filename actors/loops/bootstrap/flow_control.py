"""The default FlowSchemas and PriorityLevelConfigurations, and the status of all FlowSchemas, as kube-apiserver keeps
them. They do not limit requests here.

    missing                                      created again, whoever deleted it
    mandatory, or autoupdate-spec "true"         gets the default spec
    autoupdate-spec "false"                      left alone
    no such annotation                           gets the default spec while nobody has changed its spec
    autoupdate-spec "true", but not a default    deleted: a former version made it

The condition Dangling of a FlowSchema is True while its priority level does not exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import orjson
import trio

from kubechronicle.actors.loops.edits import create_unless_exists, delete_if_exists, edit_if_exists
from kubechronicle.actors.loops.reflector import Reflector
from kubechronicle.actors.loops.retries import Pass, each, repeat_pass
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.builtin.flowcontrol import bootstrap
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.pipeline.patching import APPLY_YAML
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry

PRODUCER: Final = "api-priority-and-fairness-config-producer-v1"
CONSUMER: Final = "api-priority-and-fairness-config-consumer-v1"
INTERVAL: Final = 60.0
"""Seconds between two passes, as in kube-apiserver."""
AT_ONCE: Final = 32
"""Objects written at once: they share a few commits."""
DANGLING: Final = "Dangling"
_BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}


def _noted(obj: Mapping[str, Any]) -> bool | None:
    """Return the annotation autoupdate-spec, None if it is absent or no truth value."""
    return _BOOLEANS.get((obj["metadata"].get("annotations") or {}).get(bootstrap.AUTOUPDATE, ""))


def revised(held: Object, spec: Object) -> Object | None:
    """Return the stored default object with the spec and the annotation that it should have; None if it has them."""
    metadata, noted = held["metadata"], _noted(held)
    updates = noted if noted is not None else metadata.get("generation") == 1
    updates = updates or metadata["name"] in bootstrap.MANDATORY
    new = dict(held)
    if updates and not _equal(held.get("spec") or {}, spec):
        new["spec"] = spec
    if noted is not updates:
        annotations = {**(metadata.get("annotations") or {}), bootstrap.AUTOUPDATE: "true" if updates else "false"}
        new["metadata"] = {**metadata, "annotations": annotations}
    return None if new == held else new


def _equal(held: Object, spec: Object) -> bool:
    """Compare two specs; the shares of exempt requests are the administrator's."""
    if "exempt" in spec and held.get("exempt") is not None:
        spec = {**spec, "exempt": held["exempt"]}
    return held == spec


def dangling(schema: Mapping[str, Any], *, exists: bool) -> Object | None:
    """Return the condition Dangling that the FlowSchema should have, without its time; None if it has it."""
    level = go_quote(((schema.get("spec") or {}).get("priorityLevelConfiguration") or {}).get("name", ""))
    message = f"This FlowSchema references the PriorityLevelConfiguration object named {level} "
    wanted = {
        "type": DANGLING,
        "status": "False" if exists else "True",
        "reason": "Found" if exists else "NotFound",
        "message": message + ("and it exists" if exists else "but there is no such object"),
    }
    for condition in (schema.get("status") or {}).get("conditions") or ():
        if condition.get("type") == DANGLING and {**condition, **wanted} == condition:
            return None
    return wanted


class FlowControlBootstrap:
    """Keeps the default objects. ``done`` is True after the first pass."""

    def __init__(self, store: Store) -> None:
        self.done = False
        self._store = store
        self._levels = store.registry.builtin(bootstrap.GROUP, "v1", "prioritylevelconfigurations")
        self._schemas = store.registry.builtin(bootstrap.GROUP, "v1", "flowschemas")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Reconcile once, report started, then reconcile every INTERVAL seconds, and follow the FlowSchemas."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._repeat)
            task_status.started()
            for rt in (self._levels, self._schemas):
                reflector = Reflector(self._store.reads, rt, component=CONSUMER, on_list=self.set_conditions)
                nursery.start_soon(reflector.run)

    async def _repeat(self, *, task_status: trio.TaskStatus[None]) -> None:
        await repeat_pass(self.reconcile, subject="objects of flow control", interval=INTERVAL, task_status=task_status)

    async def reconcile(self) -> None:
        """Create or revise the default objects, and delete those of former versions."""
        steps: list[Pass] = []
        for rt, specs in ((self._levels, bootstrap.level_specs()), (self._schemas, bootstrap.schema_specs())):
            targets = {name: Target(rt=rt, name=name, manager=PRODUCER) for name in specs}
            steps.append(
                partial(
                    each, [partial(self._ensure, targets[name], spec) for name, spec in specs.items()], at_once=AT_ONCE
                )
            )
            for entry in list(self._store.reads.entries(rt.resource, "")):
                if entry.key.name not in specs and _noted(entry.object()):
                    target = Target(rt=rt, name=entry.key.name, manager=PRODUCER)
                    steps.append(
                        partial(delete_if_exists, self._store, PRODUCER, target, DeleteOptions(), cause=entry.revision)
                    )
        await each([*steps, self.set_conditions])
        self.done = True

    async def _ensure(self, target: Target, spec: Object) -> None:
        entry = self._store.reads.peek(target.rt.resource, "", target.name)
        if entry is None:
            metadata = {"name": target.name, "annotations": {bootstrap.AUTOUPDATE: "true"}}
            await create_unless_exists(self._store, PRODUCER, target, {"metadata": metadata, "spec": spec})
        elif revised(entry.object(), spec) is not None:
            await edit_if_exists(
                self._store, PRODUCER, target, lambda now: revised(now, spec) or now, cause=entry.revision
            )

    async def set_conditions(self) -> None:
        """Set the condition Dangling of every FlowSchema that has another one."""
        wanted: list[Pass] = []
        for entry in list(self._store.reads.entries(self._schemas.resource, "")):
            schema = entry.object()
            level = ((schema.get("spec") or {}).get("priorityLevelConfiguration") or {}).get("name", "")
            exists = self._store.reads.peek(self._levels.resource, "", level) is not None
            condition = dangling(schema, exists=exists or level in bootstrap.MANDATORY)
            if condition is not None:
                wanted.append(partial(self._apply, entry, condition))
        await each(wanted, at_once=AT_ONCE)

    async def _apply(self, entry: Entry, condition: Object) -> None:
        """Apply the condition as a manager of its own, which owns nothing else of the status."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = {
            "apiVersion": self._schemas.api_version,
            "kind": self._schemas.kind,
            "metadata": {"name": entry.key.name},
            "status": {"conditions": [{**condition, "lastTransitionTime": now}]},
        }
        target = Target(rt=self._schemas, name=entry.key.name, manager=CONSUMER, subresource="status")
        caller = system_caller(CONSUMER, "patch", cause=entry.revision)
        try:
            await self._store.writes.patch(caller, target, APPLY_YAML, orjson.dumps(body), force=True)
        except StatusError as error:
            if error.code != 404:
                raise
