"""POST of a Transaction: a list of changes, each authorized, admitted and validated, committed together or not at all.

    spec.changes[0]  create configmap a/b   → rights of create on configmaps in a
    spec.changes[1]  patch deployment a/web → rights of patch on deployments in a
    commit                                  → revisions 41 and 42, or a Status that names the change that failed

The right to create transactions lets a client ask; it adds no right to any object. In the log, all changes have the
verb "transaction", this request and its user.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import orjson
from msgspec import structs

from kubechronicle.actors.external_answers import decide_with_answers
from kubechronicle.actors.reading.converted_reads import needs_webhook
from kubechronicle.actors.writing.together import Together, TransactionFailed, WriteResult
from kubechronicle.actors.writing.writes import Written
from kubechronicle.api.errors import status
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.history.cells import TRANSACTION
from kubechronicle.api.history.transactions import TransactionChange, parse_changes, without_secret_values
from kubechronicle.api.meta.options import CreateOptions, parse_create_options
from kubechronicle.api.meta.request_info import RequestInfo, forbidden_message
from kubechronicle.api.pipeline.patching import APPLY_YAML, STRATEGIC_MERGE_PATCH
from kubechronicle.api.pipeline.pipeline import Outcome
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.objects import Object
from kubechronicle.http.authorization.decision import Decision, Verdict
from kubechronicle.http.context import Context
from kubechronicle.http.handlers.backend import Backend
from kubechronicle.http.handlers.responses import computed_response
from kubechronicle.http.handlers.write_request import WriteRequest, read_write
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.representation.answers import object_form

# -- results -----------------------------------------------------------------------------------------------------------
#
# The status of a Transaction: the outcome of each change, and the range of revisions.


def status_of(results: Sequence[WriteResult], *, dry_run: bool) -> Object:
    """Return the status. A dry run has no revisions."""
    found = [_result(each) for each in results]
    revisions = [
        int(each["resourceVersion"])
        for each in found
        if each["outcome"] != "unchanged" and each.get("resourceVersion") and not dry_run
    ]
    if not revisions:
        return {"changes": found}
    return {"firstRevision": str(min(revisions)), "lastRevision": str(max(revisions)), "changes": found}


def _result(result: WriteResult) -> Object:
    rt = result.target.rt
    found: Object = {"outcome": _outcome(result), "apiVersion": rt.api_version, "kind": rt.kind}
    return found | {name: value for name, value in _identity(result.written).items() if value}


def _identity(written: Written) -> Object:
    """Return what identifies the object. That of an entry need not be decoded: it may be large."""
    entry = written.entry
    if entry is not None:
        _, namespace, name = entry.key
        return {"namespace": namespace, "name": name, "uid": entry.uid, "resourceVersion": str(entry.revision)}
    assert written.prepared is not None
    metadata = (written.object or written.prepared.object)["metadata"]
    return {name: metadata.get(name) for name in ("namespace", "name", "uid", "resourceVersion")}


def _outcome(result: WriteResult) -> str:
    prepared = result.written.prepared
    assert prepared is not None
    if prepared.outcome is Outcome.UNCHANGED:
        return "unchanged"
    if prepared.outcome is Outcome.GONE or result.removed:
        return "deleted"
    if result.deletes:
        return "marked"
    return "created" if result.written.created else "changed"


# -- commit ------------------------------------------------------------------------------------------------------------

RIGHTS: Final = {"apply": "patch"}
"""Verb of a change -> the verb of the resource, for rights; other verbs are their own."""


async def commit_together(backend: Backend, request: Request, context: Context, rt: ResourceType) -> Response:
    """Answer the POST of a Transaction: 201 with the result, or the Status of the first change that is rejected."""
    form = object_form(request, context, tables=False)
    write = await read_write(request, context, rt, parse_create_options)
    sent = write.body.value
    parse = partial(parse_changes, dry_run=write.target.dry_run)
    changes = await context.turn.run(len(write.body.raw), parse, sent)
    shown = without_secret_values(sent, changes)
    if context.audit is not None:
        context.audit.note_object(shown)
    rights = _Rights(backend, context, write)
    types = [await rights.type_of(place, change) for place, change in enumerate(changes)]
    caller = structs.replace(write.caller, who=structs.replace(write.caller.who, verb=TRANSACTION))
    together = backend.store.writes.together(caller, context.turn)
    for place, (change, of) in enumerate(zip(changes, types, strict=True)):
        try:
            await _add(together, rights, write, change, of)
        except StatusError as error:
            raise _in_place(place, change, error) from None
    try:
        results = await together.commit()
    except TransactionFailed as failed:
        raise _in_place(failed.place, changes[failed.place], failed.error) from None
    finally:
        context.warnings.extend(dict.fromkeys(together.warnings()))
    answer = {**shown, "status": status_of(results, dry_run=write.target.dry_run)}
    return await context.turn.run(0, computed_response, 201, form, rt, answer)


async def _add(
    together: Together, rights: _Rights, write: WriteRequest[CreateOptions], change: TransactionChange, rt: ResourceType
) -> None:
    """Add the write of a change to the transaction. StatusError 4xx: its object cannot be decoded."""
    target = structs.replace(
        write.target,
        rt=rt,
        namespace=change.namespace,
        name="" if change.verb == "create" else change.name,
        warnings=[],
        note_sent=None,
    )
    may_create = partial(rights.check_create, change, rt)
    if change.verb == "create":
        await together.create(target, change.object, size=len(orjson.dumps(change.object)), cause=change.cause)
    elif change.verb == "update":
        size = len(orjson.dumps(change.object))
        await together.update(target, change.object, size=size, may_create=may_create, cause=change.cause)
    elif change.verb == "delete":
        together.delete(target, change.options, cause=change.cause)
    else:
        applies = change.verb == "apply"
        body = orjson.dumps(change.object if applies else change.patch)
        content_type = APPLY_YAML if applies else change.content_type
        together.patch(target, content_type, body, force=change.force, may_create=may_create, cause=change.cause)


class _Rights:
    """The types of the changes, and the client's rights to make them."""

    def __init__(self, backend: Backend, context: Context, write: WriteRequest[CreateOptions]) -> None:
        self._backend, self._context, self._write = backend, context, write

    async def type_of(self, place: int, change: TransactionChange) -> ResourceType:
        """Return the type of a change that the client may make. StatusError 400, 403, 500."""
        rt = self._backend.store.registry.by_api_version(change.api_version, change.kind)
        problem = self._problem(change, rt)
        if problem or rt is None:
            raise status.bad_request(f"spec.changes[{place}]: {problem}")
        info = _info(rt, change, RIGHTS.get(change.verb, change.verb))
        verdict = await decide_with_answers(partial(self._decide, info))
        if verdict.decision is not Decision.ALLOW:
            raise _in_place(place, change, self._forbidden(info, verdict))
        if rt.custom is not None and not rt.custom.compiled:
            await self._context.turn.run_once(rt.custom.compilation, rt.custom.compile)
        return rt

    def _problem(self, change: TransactionChange, rt: ResourceType | None) -> str:
        """Return the reason why a transaction cannot have this change, "" if there is none."""
        if rt is None:
            return f"the server has no kind {change.kind} in {change.api_version}"
        if not rt.stored or RIGHTS.get(change.verb, change.verb) not in rt.verbs:
            return f"{change.kind} takes no {change.verb} in a transaction"
        if needs_webhook(rt):
            return f"{change.kind} is converted by a webhook, which a transaction cannot ask"
        if rt.namespaced is not bool(change.namespace):
            return f"{change.kind} {'needs a' if rt.namespaced else 'has no'} namespace"
        if change.content_type == STRATEGIC_MERGE_PATCH and rt.custom is not None:
            return "custom resources have no strategic merge patch"
        if change.verb == "apply" and not self._write.options.field_manager:
            return "apply needs ?fieldManager=NAME"
        return ""

    def check_create(self, change: TransactionChange, rt: ResourceType) -> None:
        """Check the right to create, when an update or apply finds no object. StatusError 403; Unanswered."""
        info = _info(rt, change, "create")
        verdict = self._decide(info)
        if verdict.decision is not Decision.ALLOW:
            raise self._forbidden(info, verdict)

    def _decide(self, info: RequestInfo) -> Verdict:
        return self._backend.authorization.decide(self._context.user, info)

    def _forbidden(self, info: RequestInfo, verdict: Verdict) -> StatusError:
        if verdict.error:
            return status.internal_error(verdict.error)
        return status.forbidden(info, info.name, forbidden_message(self._context.user.name, info, verdict.reason))


def _info(rt: ResourceType, change: TransactionChange, verb: str) -> RequestInfo:
    """Return the request that the change would be by itself, for authorization."""
    itself = rt.resource == "namespaces" and verb != "create"  # as by its path
    return RequestInfo(
        path="",
        verb=verb,
        is_resource=True,
        group=rt.group,
        version=rt.version,
        namespace=change.name if itself else change.namespace,
        resource=rt.plural,
        name="" if change.verb == "create" else change.name,
    )


def _in_place(place: int, change: TransactionChange, error: StatusError) -> StatusError:
    """Return the error with the place of its change. Nothing was committed."""
    where = "/".join(filter(None, (change.namespace, change.name)))
    named = f"spec.changes[{place}] ({change.verb} {change.kind}{f' {where}' if where else ''})"
    found = error.with_message(f"{named}: {error.message}; nothing was changed")
    found.warnings = error.warnings
    return found
