"""The request side of a write: its caller, its target, and the forms in which rules and admission receive them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kubechronicle.actors.admission.chain import CREATE, DELETE, NOBODY, UPDATE, Attributes
from kubechronicle.actors.large_work import Turn
from kubechronicle.actors.random_names import name_suffix as name_suffix
from kubechronicle.actors.random_names import new_uid as new_uid
from kubechronicle.api.admission.matching import UNWANTED
from kubechronicle.api.builtin.kinds import strategy_of
from kubechronicle.api.pipeline import pipeline
from kubechronicle.api.pipeline.pipeline import WriteContext
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Who

NO_OPTIONS: Final[Mapping[str, Any]] = MappingProxyType({})
OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    operation: {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
    for operation, kind in ((CREATE, "CreateOptions"), (UPDATE, "UpdateOptions"), (DELETE, "DeleteOptions"))
}
"""Operation -> its options, if the client sent none."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of a write.

    ``who``: the identity recorded in the log.
    ``deadline``: trio time until which the outcome is awaited.
    ``limited``: the caller is cancelled at the deadline or soon after, so the write needs no timer of its own.
    ``turn``: the request's share in the large work, which the caller ends; None: the write has one of its own.
    """

    who: Who
    deadline: float
    limited: bool = False
    turn: Turn | None = None


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The object of a write, and how the client wants it written.

    ``manager``: the field manager.
    ``warnings``: collects the warnings of admission and rules for the client.
    ``options``: the options of the request as the client sent them, for admission.
    ``annotations``: collects the annotations of admission for the audit event; UNWANTED: there is none.
    ``who``: filled in by Writes (``requested_by``) if missing.
    ``note_sent``: receives the decoded body for the audit event, before anything changes it; may run in a thread.
    """

    rt: ResourceType
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    manager: str = ""
    dry_run: bool = False
    field_validation: str = ""
    warnings: list[str] = msgspec.field(default_factory=list)
    options: Mapping[str, Any] = NO_OPTIONS
    annotations: dict[str, str] = msgspec.field(default_factory=lambda: UNWANTED)
    who: Who = NOBODY
    note_sent: Callable[[dict[str, Any]], None] | None = None


def requested_by(caller: Caller, target: Target) -> Target:
    """Return the target with the caller as its requester."""
    return target if target.who is caller.who else replace(target, who=caller.who)


def attributes_of(
    target: Target,
    operation: str,
    obj: dict[str, Any] | None,
    old: Entry | None,
    *,
    name: str | None = None,
    former: dict[str, Any] | None = None,
    seed: str = "",
    collection: bool = False,
) -> Attributes:
    """Return the attributes of a write for admission. ``name``: the object's, if not the URL's.

    ``former``, ``seed``, ``collection``: as in Attributes.
    """
    options = OPTIONS.get(operation)
    if target.options and options is not None:
        options = {**options, **target.options}
    return Attributes(
        rt=target.rt,
        operation=operation,
        namespace=target.namespace,
        name=target.name if name is None else name,
        subresource=target.subresource,
        object=obj,
        old=old,
        former=former,
        dry_run=target.dry_run,
        warnings=target.warnings,
        who=target.who,
        options=options,
        annotations=target.annotations,
        seed=seed,
        collection=collection,
    )


def context_of(
    target: Target, *, creates: bool = False, patches: bool = False, applies: bool = False, force: bool = False
) -> WriteContext:
    """Return the context of a write for the rules.

    ``creates``: the object may be new and then needs a uid (for its name see ``with_name_suffix``).
    ``patches``, ``applies``, ``force``: as in WriteContext.
    """
    return WriteContext(
        now=_timestamp(int(time.time())),
        uid=new_uid() if creates else "",
        manager=target.manager,
        namespace=target.namespace,
        name=target.name,
        subresource=target.subresource,
        dry_run=target.dry_run,
        field_validation=target.field_validation,
        patches=patches,
        applies=applies,
        force=force,
        requester=target.who,
    )


def _timestamp(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def with_name_suffix(target: Target, context: WriteContext, obj: dict[str, Any]) -> WriteContext:
    """Return the context for the creation of ``obj``, with a suffix for its generateName if it gets one."""
    if not obj["metadata"].get("generateName") or not strategy_of(target.rt.resource).extends_names:
        return context
    return replace(context, name_suffix=name_suffix())


def new_object(target: Target, body: dict[str, Any]) -> dict[str, Any]:
    """Return the stored form of a new object of the server's own, to be committed without admission.

    ``body``: may lack apiVersion and kind.
    """
    rt, context = target.rt, context_of(target, creates=True)
    typed = {"apiVersion": rt.api_version, "kind": rt.kind, **body}
    obj, _ = pipeline.decode_object(rt, typed, context, create=True)
    return pipeline.prepare_create(rt, obj, context).object
