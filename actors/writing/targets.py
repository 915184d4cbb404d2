"""What a write is asked for: by whom, on which object, in which manner; and what rules and plugins are told of it."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import replace

from kubechronicle.actors.admission.chain import NOBODY, Attributes
from kubechronicle.api.meta.metadata import NAME_ALPHABET
from kubechronicle.api.pipeline.pipeline import WriteContext
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Who


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """For whom a write is made, and until when (trio time) its outcome is waited for. ``limited``: whoever waits is
    cancelled then, or soon after, by whoever set the deadline."""

    who: Who
    deadline: float
    limited: bool = False


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Which object, for whom, and how the client wants the write done. ``warnings`` gathers what admission tells the
    client; ``who`` is filled in by the writer (``asked_by``) where it has not been."""

    rt: ResourceType
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    manager: str = ""
    dry_run: bool = False
    field_validation: str = ""
    warnings: list[str] = msgspec.field(default_factory=list)
    who: Who = NOBODY


def asked_by(caller: Caller, target: Target) -> Target:
    """The target of a write that this caller asks for."""
    return target if target.who is caller.who else replace(target, who=caller.who)


def attributes_of(
    target: Target, operation: str, obj: dict[str, Any] | None, old: Entry | None, *, name: str | None = None
) -> Attributes:
    """What admission is shown of a write. ``name``: the object's, where it is not the URL's."""
    return Attributes(
        rt=target.rt,
        operation=operation,
        namespace=target.namespace,
        name=target.name if name is None else name,
        subresource=target.subresource,
        object=obj,
        old=old,
        dry_run=target.dry_run,
        warnings=target.warnings,
        who=target.who,
    )


def context_of(target: Target, *, creates: bool = False, applies: bool = False, force: bool = False) -> WriteContext:
    """The rules' view of a write; ``creates``: the object may be new, and then needs a uid (and perhaps a name: see
    ``named``).
    ``applies``, ``force``: as WriteContext has them."""
    return WriteContext(
        now=_text_of(int(time.time())),
        uid=new_uid() if creates else "",
        manager=target.manager,
        namespace=target.namespace,
        name=target.name,
        subresource=target.subresource,
        dry_run=target.dry_run,
        field_validation=target.field_validation,
        applies=applies,
        force=force,
        requester=target.who,
    )


@lru_cache(maxsize=2)  # the same second is asked for by a thousand writes
def _text_of(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def new_uid() -> str:
    """A random UUID (RFC 9562, version 4), written at once: uuid.uuid4 takes three times as long."""
    digits = os.urandom(16).hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def named(context: WriteContext, obj: dict[str, Any]) -> WriteContext:
    """The context of the creation of an object, with what its name is completed by where it is to be made."""
    return replace(context, name_suffix=name_suffix()) if obj["metadata"].get("generateName") else context


def name_suffix() -> str:
    """Five characters for generateName; that some are a little likelier than others does no harm."""
    return "".join([NAME_ALPHABET[byte % len(NAME_ALPHABET)] for byte in os.urandom(5)])
