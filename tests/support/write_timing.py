"""The CPU time of a write's steps, without network and log: to show that it grows no faster than the body.

All steps that depend on the client's object run here one after the other, on one thread: decoding, defaults, managed
fields, admission and allocation, the rules, the stored form, and the table row. After a rejection the time of the
Status counts.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast

import orjson
import outcome
import trio
from in_process import InProcess

from kubechronicle.actors.admission import plugins
from kubechronicle.actors.admission.chain import AdmissionChain, AdmissionState
from kubechronicle.actors.admission.device_claims import AdminAccess
from kubechronicle.actors.admission.escalation import EscalationCheck
from kubechronicle.actors.allocation.services import ServiceAllocator
from kubechronicle.actors.external_answers import (
    NeedsExternalAnswer,
    begin_remembering,
    end_remembering,
    retry_with_answers,
)
from kubechronicle.actors.large_work import Turn
from kubechronicle.actors.writing.targets import Target, attributes_of
from kubechronicle.api.builtin.common.cell_text import ages_at
from kubechronicle.api.codecs import json as json_codec
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta import metadata
from kubechronicle.api.meta.encoding import copy_object, encode_stored
from kubechronicle.api.pipeline import pipeline
from kubechronicle.api.pipeline.pipeline import WriteContext
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.selectors.field_selectors import describe
from kubechronicle.api.tables.table import table_row
from kubechronicle.eventlog.entries import Entry, seal
from kubechronicle.eventlog.records import Key, Who
from kubechronicle.ops.server.access import permission_check

NOW = "2026-01-01T00:00:00Z"
JOE = Who(user="joe", groups=("developers",))
"""The requester: without rights, so that checks of escalation compare everything."""

SINCE = ages_at(datetime(2026, 1, 2, tzinfo=UTC))
Object = dict[str, Any]


class Steps:
    """The steps of writes to a server's state, which stays as it is."""

    def __init__(self, server: InProcess) -> None:
        assembly = server.assembly
        reads = assembly.store.reads
        permits = permission_check(assembly.authorization.chain)
        state = AdmissionState(peek=reads.peek, entries=reads.entries, permits=permits)
        hooks = (ServiceAllocator(assembly.plan.services), AdminAccess(), EscalationCheck(assembly.authorization.rbac))
        enabled = plugins.DEFAULT - {"ServiceAccount"}
        self._admission = AdmissionChain(plugins.plugins_in_order(enabled), state, hooks)

    def create(self, rt: ResourceType, body: bytes) -> str:
        """Run the steps of a creation. Return "stored", or the reason of the rejection."""
        return _at_once(self._create, rt, body)

    async def _create(self, turn: Turn, rt: ResourceType, body: bytes) -> str:
        target, context = _request(rt)
        try:
            value, duplicates = json_codec.decode(body, strict=True)
            obj, _ = pipeline.decode_object(rt, value, context, duplicates=duplicates, create=True)
            accepted = pipeline.accept_create(rt, obj, context)
            if not rt.stored:  # a review
                return _answered(rt, accepted)
            name = accepted["metadata"].get("name", "")
            attributes = attributes_of(target, "CREATE", accepted, None, name=name, seed=context.uid)
            await self._admission.admit(attributes, turn)
            metadata.generate_name(accepted["metadata"], name_suffix="bcdfg")
            self._admission.begin_write(attributes)
            prepared = pipeline.finish_create(rt, accepted, context)
            await self._admission.validate(attributes.with_object(prepared.object), turn)
            return _answered(rt, prepared.object)
        except StatusError as error:
            return _refused(error)

    def update(self, rt: ResourceType, old: Entry, body: bytes, subresource: str = "") -> str:
        """Run the steps of an update of ``old``."""
        return _at_once(self._update, rt, old, body, subresource)

    async def _update(self, turn: Turn, rt: ResourceType, old: Entry, body: bytes, subresource: str) -> str:
        target, context = _request(rt, "a", subresource)
        try:
            value, duplicates = json_codec.decode(body, strict=True)
            new, _ = pipeline.decode_object(rt, value, context, duplicates=duplicates, create=False)
            accepted = pipeline.accept_update(rt, old.object(), new, context)
            attributes = attributes_of(target, "UPDATE", accepted, old, seed=context.uid)
            await self._admission.admit(attributes, turn)
            self._admission.begin_write(attributes)
            prepared = pipeline.finish_update(rt, old.object(), accepted, context)
            await self._admission.validate(attributes.with_object(prepared.object), turn)
            return _answered(rt, prepared.object)
        except StatusError as error:
            return _refused(error)


class _AtOnce:
    """Waits as a Turn does, without an allowance: all rules run here."""

    slow = False

    async def wait(self, missing: NeedsExternalAnswer) -> None:
        await missing.resolve()

    async def let_others_run(self) -> None:
        await trio.lowlevel.checkpoint()


def _at_once(attempt: Callable[..., Awaitable[str]], *arguments: object) -> str:
    """Make a decision with all long steps that it needs, without their pauses."""
    turn = cast(Turn, _AtOnce())
    deciding, result = retry_with_answers(partial(attempt, turn, *arguments), turn.wait), None
    begin_remembering()
    try:
        while True:
            deciding.send(result)  # the coroutine pauses in checkpoints only
            result = outcome.Value(None)
    except StopIteration as stop:
        decided: str = stop.value
        return decided
    finally:
        end_remembering()


def _request(rt: ResourceType, name: str = "", subresource: str = "") -> tuple[Target, WriteContext]:
    namespace = "default" if rt.namespaced else ""
    target = Target(rt=rt, namespace=namespace, name=name, subresource=subresource, manager="m", who=JOE)
    context = WriteContext(
        now=NOW, uid="u", manager="m", namespace=namespace, name=name, subresource=subresource, requester=JOE
    )
    return target, context


def _answered(rt: ResourceType, obj: Object) -> str:
    encode_stored(obj)
    table_row(rt, obj, since=SINCE)
    return "stored"


def _refused(error: StatusError) -> str:
    orjson.dumps(error.body())
    return error.reason


def stored_entry(rt: ResourceType, obj: Object) -> Entry:
    """Return the object as the log has it after a creation without validation, so that old objects may be invalid."""
    _, context = _request(rt)
    decoded, _ = pipeline.decode_object(rt, copy_object(obj), context, create=True)
    accepted = pipeline.to_storage_version(rt, pipeline.accept_create(rt, decoded, context))
    meta = accepted["metadata"]
    meta.update(uid="u", creationTimestamp=NOW)
    key = Key(rt.resource, meta.get("namespace", ""), meta["name"])
    labels, fields = describe(rt.resource, accepted)
    return Entry(key, "u", 7, 7, 1, seal(encode_stored(accepted), 7), labels, fields)


def seconds_of(run: Callable[[], object], *, times: int = 1) -> float:
    """Return the least CPU time of some runs."""
    least = float("inf")
    for _ in range(times):
        gc.collect(0)
        gc.disable()
        began = time.thread_time()
        run()
        least = min(least, time.thread_time() - began)
        gc.enable()
    return least


def settled() -> None:
    """Keep the garbage collector from looking through everything that exists by now."""
    gc.collect()
    gc.freeze()


def encoded(obj: Object) -> bytes:
    return json.dumps(obj).encode()
