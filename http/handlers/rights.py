"""?summary=rights of revisions: who was allowed to make a request at a moment, since when, and by whose change.

    GET /history/at/2h/apis/history.kubechronicle.dev/v1/namespaces/a/revisions
        ?summary=rights&verb=delete&resource=pods&user=uma

    &group=apps &subresource=log &name=web    the request; &path=/metrics instead of a resource
    &user=uma &userGroups=["ops"]             of this user; without userGroups with those of the user's last change
    &self=true                                of the client itself, with its present groups
    (neither)                                 who can: all subjects of bindings that permit the request

The namespace of the path is that of the request; clusterrevisions are for requests without one.

Rights: those to list revisions there. About another user also the right to create subjectaccessreviews, or
localsubjectaccessreviews in the namespace. A list of subjects needs the right to list roles and bindings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import orjson

from kubechronicle.actors.external_answers import decide_with_answers
from kubechronicle.actors.history.rights import Turns, TurnSearch, grants_at, last_groups
from kubechronicle.api.access.grants_over_time import GrantsOverTime, Place, Subject
from kubechronicle.api.access.rbac import SERVICE_ACCOUNT
from kubechronicle.api.errors import status
from kubechronicle.api.history.revisions import API_VERSION, OPERATIONS, written_time
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.api.registry.groups import HISTORY
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.records import Moment, Record, Who
from kubechronicle.http.authentication.user import GROUP_AUTHENTICATED, User
from kubechronicle.http.authorization.decision import Decision, Verdict, forbidden
from kubechronicle.http.authorization.node import GROUP_NODES, NODE_PREFIX
from kubechronicle.http.authorization.past import CLUSTER_WIDE, IN_NAMESPACE, PastRights
from kubechronicle.http.authorization.rbac import GROUP, permits
from kubechronicle.http.context import Context
from kubechronicle.http.handlers.backend import Backend
from kubechronicle.http.handlers.revisions import check_moment, first_revision
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.representation.answers import CACHE_CONTROL

# -- groups then -------------------------------------------------------------------------------------------------------
#
# The groups of a user at a moment: the log has those of each change, as the user's credential named them then.

ACCOUNTS = "system:serviceaccounts"


async def groups_then(log: RevisionLog, user: str, namespace: str, revision: int) -> tuple[tuple[str, ...], int]:
    """Return the groups of a user at a revision, and the revision of the user's change they are read from (0: none).

    The groups of service accounts follow from their names. A user without a change up to then has the group of all
    authenticated users, and a node that of nodes. ``namespace``: only changes there; "": all changes.
    """
    if user.startswith(SERVICE_ACCOUNT):
        of = user.removeprefix(SERVICE_ACCOUNT).partition(":")[0]
        return (ACCOUNTS, f"{ACCOUNTS}:{of}", GROUP_AUTHENTICATED), 0
    groups, changed = await last_groups(log, user, namespace, revision)
    if groups:
        return groups, changed
    if user.startswith(NODE_PREFIX):
        return (GROUP_NODES, GROUP_AUTHENTICATED), 0
    return (GROUP_AUTHENTICATED,), 0


# -- rights ------------------------------------------------------------------------------------------------------------

MAX_SUBJECTS: Final = 1000
"""Subjects of one answer."""
MAX_THROUGH: Final = 10
"""Bindings shown of one subject."""
RBAC: Final = "RBAC"
SYSTEM: Final = "system:"
TRUE: Final = ("true", "1")


async def answer(backend: Backend, request: Request, context: Context, rt: ResourceType) -> Response:
    """Answer the question in the query. StatusError 400, 403, 405, 410."""
    question = _question(context)
    moment = context.at or Moment(await backend.store.reads.wait_consistent(), datetime.now(UTC))
    await check_moment(backend, context, moment.revision)
    about = Rights(backend, context, question, moment)
    user, of = await _user(backend, context, question, moment)
    found = await (about.who_can() if user is None else about.of_user(user, of))
    return Response(200, [("content-type", "application/json"), CACHE_CONTROL], orjson.dumps(found))


def _question(context: Context) -> RequestInfo:
    """Return the request that the question is about. StatusError 400."""
    query, namespace = context.query, context.info.namespace
    verb, path, resource = query.get("verb"), query.get("path"), query.get("resource")
    if not verb or bool(path) == bool(resource):
        raise status.bad_request("summary=rights needs a verb and a resource or a path, as verb=delete&resource=pods")
    if path:
        return RequestInfo(path, verb)
    return RequestInfo(
        "",
        verb,
        is_resource=True,
        group=query.get("group"),
        version="*",
        namespace=namespace,
        resource=resource,
        subresource=query.get("subresource"),
        name=query.get("name"),
    )


async def _user(
    backend: Backend, context: Context, question: RequestInfo, moment: Moment
) -> tuple[User | None, Mapping[str, str]]:
    """Return the user of the question, None for who can, and the origin of the user's groups. StatusError 403."""
    name = context.query.get("user")
    if context.query.get("self") in TRUE:
        return context.user, {"groupsFrom": "credential"}
    if not name:
        await _check_lists(backend, context)
        return None, {}
    await _check_reviews(backend, context, name)
    groups = _groups(context.query.get("userGroups"))
    if groups:
        return User(name=name, groups=(*groups, GROUP_AUTHENTICATED)), {"groupsFrom": "request"}
    groups, revision = await groups_then(backend.store.reads.log, name, context.info.namespace, moment.revision)
    origin = {"groupsFrom": "revision", "groupsRevision": str(revision)} if revision else {"groupsFrom": "none"}
    return User(name=name, groups=groups), origin if not name.startswith(SERVICE_ACCOUNT) else {"groupsFrom": "account"}


def _groups(text: str) -> tuple[str, ...]:
    """Return the groups of a JSON list: their names may contain any character. StatusError 400."""
    try:
        groups = orjson.loads(text or "[]")
    except orjson.JSONDecodeError:
        groups = None
    if not isinstance(groups, list) or not all(isinstance(group, str) for group in groups):
        raise status.bad_request(f'userGroups={text}: must be a JSON list of names, as ["ops"]')
    return tuple(groups)


async def _may(backend: Backend, context: Context, info: RequestInfo) -> bool:
    verdict = await decide_with_answers(partial(backend.authorization.decide, context.user, info))
    return verdict.decision is Decision.ALLOW


def _request(verb: str, group: str, resource: str, namespace: str = "") -> RequestInfo:
    return RequestInfo("", verb, is_resource=True, group=group, version="v1", namespace=namespace, resource=resource)


async def _check_reviews(backend: Backend, context: Context, name: str) -> None:
    """Check the right to ask about other users. StatusError 403."""
    namespace = context.info.namespace
    asked = _request("create", "authorization.k8s.io", "subjectaccessreviews")
    local = _request("create", "authorization.k8s.io", "localsubjectaccessreviews", namespace)
    if name == context.user.name or await _may(backend, context, asked):
        return
    if not (namespace and await _may(backend, context, local)):
        raise forbidden(context.user, local if namespace else asked)


async def _check_lists(backend: Backend, context: Context) -> None:
    """Check the right to list the roles and bindings of an answer. StatusError 403."""
    for resource, where in places(context.info.namespace):
        info = _request("list", GROUP, resource.partition(".")[0], where)
        if not await _may(backend, context, info):
            raise forbidden(context.user, info)


def places(namespace: str) -> Sequence[tuple[str, str]]:
    """Return the resources of roles and bindings that decide requests in a namespace, each with its namespace."""
    everywhere = [(resource, "") for resource in CLUSTER_WIDE]
    return [*everywhere, *((resource, namespace) for resource in IN_NAMESPACE)] if namespace else everywhere


class Rights:
    """One question and its answer."""

    def __init__(self, backend: Backend, context: Context, question: RequestInfo, moment: Moment) -> None:
        self._backend, self._context = backend, context
        self._question, self._moment = question, moment
        self._past = PastRights(backend.store.reads, backend.store.registry, moment)

    async def of_user(self, user: User, origin: Mapping[str, str]) -> dict[str, Any]:
        """Return whether a user had the right."""
        chain = await self._past.chain(self._backend.authorization, user, self._question)
        me = ("User", user.name)
        keys = {me, *(("Group", group) for group in user.groups)}
        grants = self._grants(lambda subject: me if subject in keys else None)
        entries = await self._entries()

        def decided() -> Verdict:
            grants_at(grants, entries)
            return chain.explain(user, self._question)

        verdict = await self._context.turn.run(self._past.size, decided)
        allowed = verdict.decision is Decision.ALLOW
        turns = await self._turns(grants, (me,), {name for _, name in keys})
        found = {"user": user.name, "groups": list(user.groups), **origin, "allowed": allowed}
        if verdict.reason:
            found["reason"] = verdict.reason
        if verdict.error:
            found["error"] = verdict.error
        if self._decides_by_rbac and allowed is grants.holds(me):
            found |= await self._described(me, grants, turns)
        return self._answer(found)

    async def who_can(self) -> dict[str, Any]:
        """Return the subjects of the bindings that gave the right."""
        grants = self._grants(lambda subject: subject)
        await self._context.turn.run(self._past.size, grants_at, grants, await self._entries())
        holders = sorted(grants.holders(), key=lambda subject: subject[1].startswith(SYSTEM))  # people come first
        holders = holders if self._decides_by_rbac else []
        turns = await self._turns(grants, holders[:MAX_SUBJECTS], None)
        subjects = [
            {"kind": subject[0], "name": subject[1], **await self._described(subject, grants, turns)}
            for subject in holders[:MAX_SUBJECTS]
        ]
        found: dict[str, Any] = {"subjects": subjects, "total": len(holders)}
        return self._answer(found)

    @property
    def _decides_by_rbac(self) -> bool:
        return RBAC in self._backend.authorization.types()

    def _grants(self, concerns: Callable[[Subject], Subject | None]) -> GrantsOverTime:
        return GrantsOverTime(partial(permits, info=self._question), concerns)

    async def _entries(self) -> dict[str, Sequence[Entry]]:
        """Return the roles and bindings of the moment."""
        return {
            resource: await self._past.entries(resource, where) for resource, where in places(self._question.namespace)
        }

    async def _turns(self, grants: GrantsOverTime, subjects: Sequence[Subject], names: set[str] | None) -> Turns:
        """Find the turning points of subjects. ``names``: no other names in bindings matter; None: all do."""
        namespace = self._question.namespace
        floor = await first_revision(self._backend, self._context, namespace) if namespace else 0
        search = TurnSearch(self._backend.store.reads, namespace=namespace, floor=floor, names=names)
        return await search.turns(grants.copy(), self._moment.revision, subjects)

    # -- the parts of an answer ---------------------------------------------------------------------------------------

    def _answer(self, found: dict[str, Any]) -> dict[str, Any]:
        info = self._question
        names = ("verb", "group", "resource", "subresource", "name", "namespace", "path")
        return {
            "apiVersion": API_VERSION,
            "kind": "RightsSummary",
            "metadata": {"resourceVersion": str(self._moment.revision)},
            "time": written_time(self._moment.time),
            "authorizers": self._backend.authorization.types(),
            "request": {name: getattr(info, name) for name in names if getattr(info, name)},
            **found,
        }

    async def _described(self, subject: Subject, grants: GrantsOverTime, turns: Turns) -> dict[str, Any]:
        """Return the bindings of a subject, and its turning points."""
        through = [_through(binding, role) for binding, role in grants.through(subject)[:MAX_THROUGH]]
        found: dict[str, Any] = {"through": through} if through else {}
        since, until = turns.since.get(subject), turns.until.get(subject)
        if since is not None:
            found["since"] = await self._turn(since)
        elif turns.whole:
            found["since"] = {"always": True}
        else:
            found["since"] = {"atLeast": str(turns.first)}
        if until is not None:
            found["until"] = await self._turn(until)
        elif turns.last < self._backend.store.reads.applied:
            found["until"] = {"atLeast": str(turns.last)}
        return found

    async def _turn(self, record: Record) -> dict[str, Any]:
        """Return a turning point. Its author is left out without the right to list the revisions it is among."""
        key, who = record.key, record.who or Who(user="")
        plural, _, group = key.resource.partition(".")
        found: dict[str, Any] = {
            "revision": str(record.revision),
            "time": written_time(record.committed_at),
            "operation": OPERATIONS[int(record.operation)],
            "object": {"resource": plural, "group": group, "name": key.name}
            | ({"namespace": key.namespace} if key.namespace else {}),
        }
        kind = "revisions" if key.namespace else "clusterrevisions"
        if not await _may(self._backend, self._context, _request("list", HISTORY, kind, key.namespace)):
            return found | {"redacted": True}
        author = {"username": who.user, "impersonator": who.impersonator, "userAgent": who.user_agent}
        return found | {"who": {name: value for name, value in author.items() if value}}


def _through(binding: Place, role: Place) -> dict[str, Any]:
    def named(place: Place, kind: str) -> dict[str, str]:
        if place[0]:
            return {"kind": kind, "namespace": place[0], "name": place[1]}
        return {"kind": f"Cluster{kind}", "name": place[1]}

    return {"binding": named(binding, "RoleBinding"), "role": named(role, "Role")}
