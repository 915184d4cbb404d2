"""The steps of a deletion: the object to store or to remove, and the answer. The rules are in deletion.py."""

from __future__ import annotations

from typing import Final

from kubechronicle.api.errors import status
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.pipeline import deletion, pipeline
from kubechronicle.api.pipeline.tracking import rules_of
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.strategy.strategy import Outcome, Prepared, WriteContext
from kubechronicle.api.values.objects import Object

_OUTCOMES: Final = {
    deletion.Fate.GONE: Outcome.GONE,
    deletion.Fate.MARKED: Outcome.STORE,
    deletion.Fate.MARKED_GONE: Outcome.STORE_THEN_GONE,
    deletion.Fate.UNCHANGED: Outcome.UNCHANGED,
}


def require_deletable(rt: ResourceType, name: str) -> None:
    """Raise 403 for an object that a request by its name does not delete. (One for a collection does, as there.)"""
    if reason := rules_of(rt).refuses_deletion(name):
        raise status.forbidden(rt, name, reason)


def prepare_delete(rt: ResourceType, old: Object, options: DeleteOptions, ctx: WriteContext) -> Prepared:
    """Return the result of a deletion. Raises 409 for failed preconditions."""
    strategy = rules_of(rt)
    if rt.resource == pipeline.NAMESPACES:
        decision = deletion.decide_namespace(old, options, now=ctx.now)
    elif rt.resource == deletion.DEFINITIONS:
        decision = deletion.decide_definition(old, options, strategy, now=ctx.now)
    else:
        decision = deletion.decide(old, options, strategy, now=ctx.now)
    expected = int(old["metadata"]["resourceVersion"])
    if decision.fate in (deletion.Fate.MARKED, deletion.Fate.MARKED_GONE):
        decision.object["metadata"].pop("resourceVersion", None)
    last = old if decision.fate is deletion.Fate.GONE else None
    return Prepared(_OUTCOMES[decision.fate], decision.object, expected, last)


def delete_answer(rt: ResourceType, prepared: Prepared, name: str, *, revision: int = 0) -> Object:
    """Return the answer of a DELETE: the object while it exists or if its kind requires it, else a Status.

    After a stored change, ``prepared`` has the stored object with its resourceVersion. ``revision`` is the revision of
    the deletion, for a removed object.
    """
    gone = prepared.outcome in (Outcome.GONE, Outcome.STORE_THEN_GONE)
    if gone and not rules_of(rt).answers_deleted(rt.api_version):
        uid = prepared.object["metadata"].get("uid", "")
        return status.success(details=status.details_of(rt, name, uid=uid))
    obj = pipeline.to_request_version(rt, prepared.object)
    if gone and revision:
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}}
    return obj
