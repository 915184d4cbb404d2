"""Revisions (history.kubechronicle.dev): get, list and watch of the changes in the log, by the ordinary handlers.

    ?content=diff|full    lists and watches: diffs only, or also the objects before and after; a get has all
    ?content=states       the objects alone, without any comparison, for readers of many changes
    ?content=after        of these, the objects after the changes, and deleted ones: at half the cost
    ?fields=a.b,c         with states and after: of the objects only these fields, and apiVersion and kind;
                          with &fieldsOf=apps/v1, objects that are stored in another version come as a whole
    ?details=none         with states and after: no uid and version, and of the user the name alone: for less CPU
    ?verdicts=audited     only writes that a policy would have refused that is bound with Audit alone, with its verdict;
                          warnings name the policies that are not judged here
    ?values=shown         the values of Secrets, which is recorded; without it they are masked (by ?mask=KEY, if given).
                          The contents states and after, for programs, are as the log holds them
    ?order=oldest         lists begin with the oldest (?order=newest, the default, with the newest)
    ?summary=QUESTION     an answer about the changes instead of their list: see questions/summaries.py

Rights: the right to revisions (clusterrevisions) in a namespace shows that an object changed. The change itself is
shown to users with the right to get that object, which the authorizers decide for each object. Counting needs the right
to list. A right in one namespace begins with the present namespace of that name.
"""

from __future__ import annotations

from dataclasses import replace

from kubechronicle.actors.external_answers import decide_with_answers
from kubechronicle.actors.history.change_records import WHOLE, PlainForm, SecretValues
from kubechronicle.actors.history.extent import extent
from kubechronicle.actors.history.log_changes import NEVER, LogChanges, Readable
from kubechronicle.actors.history.other_logs import at_time, created_in
from kubechronicle.actors.history.recorded_reads import RecordedReads
from kubechronicle.actors.history.revisions import ChangeReads
from kubechronicle.actors.history.verdicts import BINDINGS, POLICIES, Audited, Verdicts
from kubechronicle.actors.reading.reads import Reads, Selection
from kubechronicle.api.errors import status
from kubechronicle.api.history.cells import HIDDEN, NOISE
from kubechronicle.api.history.extents import covered
from kubechronicle.api.history.object_parts import parts_of
from kubechronicle.api.history.revisions import CONTENTS, LONGEST_KEY, PLAIN
from kubechronicle.api.meta.request_info import RequestInfo, forbidden_message
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.selectors.field_selectors import FieldSelector, FieldTerm
from kubechronicle.api.selectors.selectable_fields import KIND_FIELDS
from kubechronicle.eventlog.errors import BeforeHistory
from kubechronicle.eventlog.records import Moment
from kubechronicle.http.authorization.decision import Decision
from kubechronicle.http.context import Context
from kubechronicle.http.handlers.backend import Backend
from kubechronicle.http.messages import Request

REVISIONS = frozenset(("revisions", "clusterrevisions"))
EXPLICIT = frozenset((*KIND_FIELDS, NOISE, "object.name", "object.uid"))
"""Selectors with which noise is not left out."""
LEFT_OUT_NOISE = "Events and Leases are left out; list them with --field-selector noise=shown"
VERDICTS = "verdicts"
FIELDS = "fields"
FIELDS_OF = "fieldsOf"
DETAILS = "details"
VALUES = "values"
MASK = "mask"
SHOWN = "shown"


async def read_revisions(backend: Backend, request: Request, context: Context) -> Backend:
    """Return the backend with reads of revisions, limited to the rights of the request's user. StatusError 400."""
    content, order = context.query.get("content"), context.query.get("order", "newest")
    if content not in CONTENTS:
        raise status.bad_request(f"content={content}: must be diff, full, states or after, or left out")
    if order not in ("newest", "oldest"):
        raise status.bad_request(f"order={order}: must be newest or oldest")
    wanted = context.query.get(VERDICTS)
    if wanted not in ("", "audited"):
        raise status.bad_request(f"{VERDICTS}={wanted}: must be audited, or left out")
    if wanted and context.info.verb != "list":
        raise status.bad_request(f"{VERDICTS}={wanted}: only lists have verdicts")
    changes = readable_revisions(
        backend,
        context,
        content=content,
        form=_plain_form(context, content),
        oldest_first=order == "oldest",
        verdicts=await _verdicts(backend) if wanted else None,
        values=_secret_values(backend, request, context),
    )
    return replace(backend, reads=changes)


def _plain_form(context: Context, content: str) -> PlainForm:
    """Return the form of plain contents that the request wants. StatusError 400."""
    fields, details = context.query.get(FIELDS), context.query.get(DETAILS)
    if not fields and not details:
        return WHOLE
    if content not in PLAIN or context.info.verb != "list" or VERDICTS in context.query:
        raise status.bad_request(f"{FIELDS} and {DETAILS}: only for lists with content=states or content=after")
    if details not in ("", "none"):
        raise status.bad_request(f"{DETAILS}={details}: must be none, or left out")
    try:
        parts = parts_of(fields.split(","), context.query.get(FIELDS_OF)) if fields else None
        return PlainForm(parts, brief=details == "none")
    except ValueError as error:
        raise status.bad_request(f"{FIELDS}: {error}") from None


async def _audited(backend: Backend) -> Audited:
    return Audited((), ()) if backend.audited is None else await backend.audited.current()


async def _verdicts(backend: Backend) -> Verdicts:
    return Verdicts((await _audited(backend)).policies, backend.store.reads, backend.store.registry)


async def check_policies_listed(backend: Backend, context: Context) -> None:
    """Check the user's right to list the policies whose verdicts are wanted, and their bindings. StatusError 403.

    Warn of those whose verdicts are limited.
    """
    for resource in (POLICIES, BINDINGS):
        plural, _, group = resource.partition(".")
        await check_listed(backend, context, group, "v1", plural)
    context.warnings += (await _audited(backend)).remarks


def read_recorded(backend: Backend, context: Context) -> Backend:
    """Return the backend with the recorded reads of objects."""
    return replace(backend, reads=RecordedReads(backend.store.reads, at=context.at))


def readable_revisions(
    backend: Backend,
    context: Context,
    *,
    content: str = "",
    form: PlainForm = WHOLE,
    oldest_first: bool = False,
    verdicts: Verdicts | None = None,
    values: SecretValues | None = None,
) -> ChangeReads:
    """Return the revisions of all logs, limited to the rights of the request's user."""
    reads = backend.store.reads

    async def of_log(log: Reads) -> LogChanges:
        at = context.at
        if at is not None and log is not reads:
            try:
                at = await at_time(log, at.time)
            except BeforeHistory:  # then it has no change to show
                at = Moment(0, at.time)
        return LogChanges(
            log,
            backend.store.registry,
            backend.store.past.deleted,
            every=reads,
            readable=readable_since(backend, context, log),
            begins=lambda namespace: first_revision(backend, context, namespace, log),
            turn=context.turn,
            at=at,
            content=next(each for each in CONTENTS if each == content),
            form=form,
            verdicts=verdicts,
            values=values,
        )

    return ChangeReads(reads, of_log, context.warnings.append, oldest_first=oldest_first)


def wants_shown(context: Context) -> bool:
    """Tell whether a request asks for the values of Secrets. StatusError 400."""
    wanted = context.query.get(VALUES)
    if wanted not in ("", SHOWN):
        raise status.bad_request(f"{VALUES}={wanted}: must be {SHOWN}, or left out")
    return wanted == SHOWN


def mask_key(context: Context) -> bytes | None:
    """Return the key of the masks that a request names, None if it names none. StatusError 400."""
    key = context.query.get(MASK).encode()
    if len(key) > LONGEST_KEY:
        raise status.bad_request(f"{MASK} is longer than {LONGEST_KEY} bytes")
    return key or None


def _secret_values(backend: Backend, request: Request, context: Context) -> SecretValues:
    """Return the form of the values of Secrets that the request wants. StatusError 400."""
    reads, key = backend.store.reads, mask_key(context)
    if wants_shown(context):
        record = backend.shown_secrets.recorder(reads.log.recorded, request, context, reads.applied)
        return SecretValues(record=record)
    return SecretValues() if key is None else SecretValues(key=key)


def without_noise(request: Request, context: Context, rt: ResourceType, selection: Selection) -> Selection:
    """Return a selection of revisions without noise (api/history/cells.py), if people read the answer.

    These are tables, as kubectl requests them. A selection of kinds, of one object or of noise stays as it is, and a
    warning tells of the rest.
    """
    if not _is_read_by_people(request, rt):
        return selection
    terms = selection.fields.terms if selection.fields is not None else []
    if any(term.field in EXPLICIT for term in terms):
        return selection
    context.warnings.append(LEFT_OUT_NOISE)
    return replace(selection, fields=FieldSelector([*terms, FieldTerm(NOISE, equal=True, value=HIDDEN)]))


def _is_read_by_people(request: Request, rt: ResourceType) -> bool:
    return rt.plural in REVISIONS and "as=Table" in request.headers.get("accept").replace(" ", "")


async def warn_if_nothing(
    backend: Backend, request: Request, context: Context, rt: ResourceType, selection: Selection
) -> None:
    """Tell the reader of an empty table of revisions what was searched."""
    if _is_read_by_people(request, rt):
        found = await extent(await readable_revisions(backend, context).shares(rt, selection))
        context.warnings.append(f"nothing was found: {covered(found)}")


async def check_listed(
    backend: Backend, context: Context, group: str, version: str, resource: str, namespace: str = ""
) -> None:
    """Check the user's right to list a resource. StatusError 403."""
    info = RequestInfo(
        path="",
        verb="list",
        is_resource=True,
        group=group,
        version=version,
        resource=resource,
        namespace=namespace,
        field_selector=context.info.field_selector,
    )
    verdict = await decide_with_answers(lambda: backend.authorization.decide(context.user, info))
    if verdict.decision is not Decision.ALLOW:
        why = forbidden_message(context.user.name, info, verdict.reason)
        raise status.forbidden(info, "", why)


def readable_since(backend: Backend, context: Context, log: Reads | None = None) -> Readable:
    """Return the check for the right to get an object: all of its kind, those in the namespace, or this one by name.
    ``log``: the one whose revisions are meant, by default the main one.
    A right in one namespace begins with it. Each answer is kept for the request. Most readers of many changes may get
    all, so that one question is enough."""
    created: dict[str, int] = {}
    known: dict[tuple[str, str, str], bool] = {}
    user, registry, authorization = context.user, backend.store.registry, backend.authorization

    async def may_get(resource: str, namespace: str, name: str) -> bool:
        key = (resource, namespace, name)
        if key not in known:
            plural, _, group = resource.partition(".")
            rt = registry.storage(resource)
            info = RequestInfo(
                path="",
                verb="get",
                is_resource=True,
                group=rt.group if rt else group,
                version=rt.version if rt else "*",
                namespace=namespace,
                resource=plural,
                name=name,
            )
            verdict = await decide_with_answers(lambda: authorization.decide(user, info))
            known[key] = verdict.decision is Decision.ALLOW
        return known[key]

    async def readable(resource: str, namespace: str, name: str) -> int:
        if await may_get(resource, "", ""):
            return 0
        in_namespace = bool(namespace) and await may_get(resource, namespace, "")
        if not in_namespace and not (name and await may_get(resource, namespace, name)):
            return NEVER
        if namespace and namespace not in created:
            reads = backend.store.reads
            created[namespace] = await created_in(reads, log or reads, namespace)
        return created[namespace] if namespace else 0

    return readable


# -- history of a namespace ---------------------------------------------------------------------------------------
#
# A tenant's rights in a namespace end with it. If the name is used again, the rights of the new tenant cover the
# history since the new namespace was created; the earlier history needs the right to read all namespaces. A deleted
# namespace counts as the present one until its name is used again.
#
#     revision 5    namespace a is created     a reader of Secrets in a alone reads them …
#     revision 9    namespace a is deleted
#     revision 12   namespace a is created     … from revision 12 on


async def first_revision(backend: Backend, context: Context, namespace: str, log: Reads | None = None) -> int:
    """Return the first revision of a namespace that the request may read; 0: it may read all. ``log``: as above."""
    reads = backend.store.reads
    created = await created_in(reads, log or reads, namespace)
    return created if created and not await _reads_all_namespaces(backend, context) else 0


async def check_list(backend: Backend, context: Context, rt: ResourceType, namespace: str, revision: int) -> None:
    """Raise StatusError 410 for a list or watch at a revision before the present namespace: clients list again."""
    reads = backend.store.reads
    if namespace and revision < await created_in(reads, reads.of(rt.resource), namespace):
        created = await first_revision(backend, context, namespace, reads.of(rt.resource))
        if revision < created:
            raise status.expired(_reason(namespace, revision, created))


async def check_moment(backend: Backend, context: Context, revision: int) -> None:
    """Raise StatusError 403 for a read below /history/at/… of a moment before the present namespace."""
    info = context.info
    if not info.namespace:
        return
    created = await first_revision(backend, context, info.namespace)
    if revision < created:
        why = forbidden_message(context.user.name, info, _reason(info.namespace, revision, created))
        raise status.forbidden(info, info.name, why)


def _reason(namespace: str, revision: int, created: int) -> str:
    return (
        f"revision {revision} is older than the namespace {namespace}, which was created at revision {created}; "
        "the history of an earlier namespace of this name requires the right to read all namespaces"
    )


async def _reads_all_namespaces(backend: Backend, context: Context) -> bool:
    info = replace(context.info, namespace="")
    verdict = await decide_with_answers(lambda: backend.authorization.decide(context.user, info))
    return verdict.decision is Decision.ALLOW
