"""The RBAC authorizer: decides by the roles and bindings in the views (api/access/bound_rules.py).

Before each decision it catches up with the views (usually four comparisons), so that a change has effect from the next
request on. Its task ``run`` indexes the rules of changed roles meanwhile, in short steps.

Decisions are kept by the namespace of the request, until a role or binding of that namespace changes, or a cluster role
or its binding:

    namespace ta    alice, get configmaps    permitted, whatever the name
                    alice, get secrets       not permitted by rules of all objects: rules of this name are looked up
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import orjson
import trio

from kubechronicle.actors.external_answers import NeedsExternalAnswer, in_steps, recall_answer, remember_answer
from kubechronicle.actors.large_work import LARGE_BYTES
from kubechronicle.actors.pauses import Pauses
from kubechronicle.api.access import rbac
from kubechronicle.api.access.bound_rules import GROUP as GROUP
from kubechronicle.api.access.bound_rules import MANY, BoundRules, Grants, RightQuestion, StoredBinding
from kubechronicle.api.access.rule_index import Rule
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.api.values.caches import kept
from kubechronicle.api.values.steps import Steps, finish
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Who
from kubechronicle.http.authentication.user import User
from kubechronicle.http.authorization.decision import ALLOWED, NO_OPINION, Decision, UserRules, Verdict
from kubechronicle.http.authorization.view_follower import FollowedViews, Following, ViewFollower

MAX_KEPT: Final = 32 << 20
"""Approximate bytes of the kept decisions. They are dropped beyond that: reviews name any user in any namespace."""
LONGEST_KEPT: Final = 1024
"""Characters of the groups and path of a decision that is kept."""
KEPT_BYTES: Final = 400
"""Bytes of a kept decision, besides its texts."""
ROLES: Final = (f"clusterroles.{GROUP}", f"roles.{GROUP}")
BINDINGS: Final = (f"clusterrolebindings.{GROUP}", f"rolebindings.{GROUP}")
QUICK: Final = 512
"""Comparisons of rules up to which a check of rights is one step."""
LISTED_BYTES: Final = 64 << 20
"""Bytes of JSON of the rules in a rules review. Further ones are left out, and the review says so."""
TOO_MANY: Final = "too many rules: further ones are not listed"

T = TypeVar("T")


class _Kept:
    """The decisions about requests in one namespace.

    ``general``: those that hold for objects of every name. ``explained``: those about one name, with their reasons.
    ``refusals``: NO_OPINION, by user.
    """

    __slots__ = ("explained", "general", "refusals")

    def __init__(self) -> None:
        self.general: dict[tuple[Any, ...], bool] = {}
        self.explained: dict[tuple[Any, ...], Verdict] = {}
        self.refusals: dict[tuple[Any, ...], Verdict] = {}


class RbacAuthorizer:
    def __init__(self, views: FollowedViews) -> None:
        self._rules = BoundRules()
        self._kept: dict[str, _Kept] = kept("verdicts")
        self._kept_bytes = 0
        self._reading = trio.CapacityLimiter(1)
        self._followers = [
            *(ViewFollower(views[resource], self._role) for resource in ROLES),
            *(ViewFollower(views[resource], self._binding) for resource in BINDINGS),
        ]
        self.following = Following(self._followers, self._index_late)

    def decide(self, user: User, info: RequestInfo) -> Verdict:
        """Return ALLOW, or NO_OPINION with the missing roles of the user's bindings."""
        if not info.is_resource:
            return self.explain(user, info)
        self._catch_up()
        namespace = info.namespace
        general = self._kept_of(namespace).general
        key = (user.name, user.groups, info.verb, info.group, info.resource, info.subresource)
        permitted = general.get(key)
        if permitted is None:
            grants = self._grants(user.name, user.groups, namespace)
            permitted = self._rules.permits_all(grants, _question(info))
            self._keep(general, key, permitted, info)
        if permitted:
            return ALLOWED
        if self._rules.named(namespace, info.name):
            grants = self._grants(user.name, user.groups, namespace)
            if self._rules.permits(grants, _question(info)):
                return ALLOWED
        return self._refused(user, info)

    def explain(self, user: User, info: RequestInfo) -> Verdict:
        """Return the same verdict as ``decide``, with the text of the binding that allows it.

        Audit events have it, too, so what repeats is kept.
        """
        self._catch_up()
        explained = self._kept_of(info.namespace).explained
        asked = (info.group, info.resource, info.subresource, info.name) if info.is_resource else (info.path,)
        key = (user.name, user.groups, info.verb, *asked)
        verdict = explained.get(key)
        if verdict is None:
            grants = self._grants(user.name, user.groups, info.namespace)
            reason = self._in_steps(("reason", *key), self._rules.reason(grants, _question(info)), grants)
            verdict = Verdict(Decision.ALLOW, reason) if reason is not None else self._refused(user, info)
            self._keep(explained, key, verdict, info)
        return verdict

    def _refused(self, user: User, info: RequestInfo) -> Verdict:
        """Return NO_OPINION, with the missing roles of the user's bindings."""
        refusals = self._kept_of(info.namespace).refusals
        key = (user.name, user.groups)
        refusal = refusals.get(key)
        if refusal is None:
            missing = self._missing(user.name, user.groups, info.namespace)
            listed = missing[0] if len(missing) == 1 else "[" + ", ".join(missing) + "]"
            refusal = Verdict(Decision.NO_OPINION, f"RBAC: {listed}") if missing else NO_OPINION
            self._keep(refusals, key, refusal, info, len(refusal.reason))
        return refusal

    def rules(self, user: User, namespace: str) -> UserRules:
        """Return the user's rules in a namespace ("": cluster-wide only), and missing roles as errors."""
        self._catch_up()
        grants = self._grants(user.name, user.groups, namespace)
        return self._in_steps(("rules", user.name, user.groups, namespace), self._listed(grants), grants)

    def _listed(self, grants: Grants) -> Steps[UserRules]:
        rules: list[Rule] = []
        errors: list[str] = []
        size = 0
        for found in self._rules.rules(grants):
            yield
            if isinstance(found, str):
                errors.append(found)
            elif found is not None:
                size += found.size
                if size > LISTED_BYTES:
                    return UserRules(rules, [*errors, TOO_MANY], incomplete=True)
                rules += found.rules
        return UserRules(rules, errors, size=size)

    def at(self, views: FollowedViews) -> RbacAuthorizer:
        return RbacAuthorizer(views)

    # For the escalation check (actors/admission/escalation.py).

    def not_covered(self, who: Who, namespace: str, wanted: Sequence[Rule]) -> Sequence[str]:
        """Return the rules of ``wanted`` that a user does not have in a namespace ("": cluster-wide), as rejections
        show them. NeedsExternalAnswer."""
        key = (who.user, who.groups, namespace, orjson.dumps(wanted))
        known = recall_answer(key)
        if isinstance(known, tuple):
            return known
        missing: list[Rule] = []
        self._catch_up()
        steps = self._rules.compare(self._grants(who.user, who.groups, namespace), wanted, missing)
        if self.following.runs and rbac.work(wanted) > QUICK:
            raise LongComparison(key, steps, missing)
        for _ in steps:
            pass
        return rbac.describe(missing)

    def unresolved(self, who: Who, namespace: str) -> Sequence[str]:
        """Return the errors for missing roles of a user's bindings."""
        self._catch_up()
        return self._missing(who.user, who.groups, namespace)

    def _missing(self, name: str, groups: Sequence[str], namespace: str) -> Sequence[str]:
        grants = self._grants(name, groups, namespace)
        return self._in_steps(("missing", name, groups, namespace), self._rules.missing(grants), grants)

    def _grants(self, name: str, groups: Sequence[str], namespace: str) -> Grants:
        """Return the grants to a user, once their roles are indexed. NotIndexed, LongWork."""
        runs, rules = self.following.runs, self._rules
        if runs and rules.late_bindings(namespace) > LARGE_BYTES:
            raise NotIndexed(self.following)  # the question waits for the task
        if len(groups) <= MANY:
            grants = rules.grants_at_once(name, groups, namespace)
        else:
            key, steps = ("grants", name, groups, namespace), rules.grants(name, groups, namespace)
            grants = in_steps(key, steps, long=True) if runs else finish(steps)
        if runs and rules.late_roles(grants) > LARGE_BYTES:
            raise NotIndexed(self.following)
        return grants

    def _in_steps(self, key: object, steps: Steps[T], grants: Grants) -> T:
        """Return the result of steps about all bindings of a user. LongWork."""
        if not grants.are_many:
            return finish(steps)
        return in_steps(key, steps, long=True) if self.following.runs else finish(steps)

    # -- kept decisions -----------------------------------------------------------------------------------------------

    def _kept_of(self, namespace: str) -> _Kept:
        kept = self._kept.get(namespace)
        if kept is None:
            kept = self._kept[namespace] = _Kept()
            self._kept_bytes += KEPT_BYTES + len(namespace)
        return kept

    def _keep(
        self, decisions: dict[tuple[Any, ...], T], key: tuple[Any, ...], decision: T, info: RequestInfo, size: int = 0
    ) -> None:
        """Keep a decision of ``size`` bytes, unless its key is long."""
        length = sum(len(part) if isinstance(part, str) else sum(map(len, part)) for part in key)
        if length > LONGEST_KEPT:
            return
        self._kept_bytes += KEPT_BYTES + length + size
        if self._kept_bytes > MAX_KEPT:
            self._forget("")
        else:
            decisions[key] = decision

    def _forget(self, namespace: str) -> None:
        """Drop the decisions about a namespace, all for ""."""
        if namespace:
            self._kept.pop(namespace, None)
        else:
            self._kept.clear()
            self._kept_bytes = 0

    # -- following the views ------------------------------------------------------------------------------------------

    async def _index_late(self) -> None:
        """Index changed roles and long bindings, in short steps."""
        pauses = Pauses()
        while (first := self._rules.first_late()) is not None:
            is_binding, place, stored = first
            content: Mapping[str, Any] | None = None
            if stored is not None and stored.size > LARGE_BYTES:
                content = await trio.to_thread.run_sync(stored.read, limiter=self._reading)
            elif stored is not None:
                content = stored.read()
            await pauses.take(self._rules.index(place, stored, content, is_binding=is_binding))
            await pauses.pause()

    def _catch_up(self) -> None:
        for follower in self._followers:
            follower.catch_up()

    def _role(self, namespace: str, name: str, entry: Entry | None) -> None:
        self._forget(namespace)
        self._rules.put_role((namespace, name), _stored(entry))

    def _binding(self, namespace: str, name: str, entry: Entry | None) -> None:
        self._forget(namespace)
        self._rules.put_binding(namespace, name, _stored(entry))


class NotIndexed(NeedsExternalAnswer):
    """A decision needs large roles or bindings that have just changed."""

    def __init__(self, following: Following) -> None:
        super().__init__()
        self._following = following

    async def resolve(self) -> None:
        await self._following.wait()


class LongComparison(NeedsExternalAnswer):
    """A write grants so many rules that their comparison with those of the writer takes several steps."""

    def __init__(self, key: object, steps: Iterator[None], missing: list[Rule]) -> None:
        super().__init__()
        self._key, self._steps, self._missing = key, steps, missing

    async def resolve(self) -> None:
        await Pauses().take(self._steps)
        described = await trio.to_thread.run_sync(rbac.describe, self._missing)
        remember_answer(self._key, tuple(described))


def _stored(entry: Entry | None) -> StoredBinding | None:
    return StoredBinding(entry.object, len(entry.json)) if entry is not None else None


def _question(info: RequestInfo) -> RightQuestion:
    if not info.is_resource:
        return RightQuestion(verb=info.verb, path=info.path)
    return RightQuestion(
        verb=info.verb, group=info.group, resource=info.resource, subresource=info.subresource, name=info.name
    )


def permits(rule: Rule, info: RequestInfo) -> bool:
    """Return whether one rule permits the request."""
    if not info.is_resource:
        return rbac.permits_path(rule, info.verb, info.path)
    return rbac.permits_resource(rule, info.verb, info.group, info.resource, info.subresource, info.name)
