"""Verdicts of authorizers, and the chain that calls them in order (k8s.io/apiserver's union authorizer).

ALLOW and DENY are final; NO_OPINION passes the request on to the next. A request that no authorizer allows is
forbidden, with the reasons of all.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, NoReturn, Protocol, Self

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.api.access.rule_index import Rule
from kubechronicle.api.errors import status
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.request_info import RequestInfo, forbidden_message
from kubechronicle.api.selectors.field_selectors import value_required
from kubechronicle.api.values.names import path_segment
from kubechronicle.http.authentication.user import GROUP_MASTERS, User
from kubechronicle.http.authorization.view_follower import FollowedViews


class Decision(enum.Enum):
    ALLOW = "allow"
    DENY = "deny"
    NO_OPINION = "no opinion"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision of an authorizer.

    ``reason``: text for reviews and 403 answers, or ""
    ``error``: a failure that prevented a proper decision; a request that is not allowed is then answered with 500
    """

    decision: Decision
    reason: str = ""
    error: str = ""


Decide = Callable[[User, RequestInfo], Verdict]
ALLOWED = Verdict(Decision.ALLOW)
NO_OPINION = Verdict(Decision.NO_OPINION)


@dataclass(frozen=True, slots=True)
class UserRules:
    """The rights of a user in a namespace, as PolicyRules.

    ``errors``: roles that could not be resolved
    ``incomplete``: whether there are rights that can't be listed
    ``size``: about the bytes of their JSON, if they are many
    """

    rules: Sequence[Rule] = ()
    errors: Sequence[str] = ()
    incomplete: bool = False
    size: int = 0


EVERYTHING = UserRules(
    (
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
        {"verbs": ["*"], "nonResourceURLs": ["*"]},
    )
)


class Authorizer(Protocol):
    def decide(self, user: User, info: RequestInfo) -> Verdict:
        """Return the verdict on a request. The fast path."""
        ...

    def explain(self, user: User, info: RequestInfo) -> Verdict:
        """Return the same verdict with its reason, for reviews."""
        ...

    def rules(self, user: User, namespace: str) -> UserRules:
        """Return the user's rights in the namespace, or cluster-wide for ""."""
        ...

    def at(self, views: FollowedViews) -> Authorizer:
        """Return the authorizer that decides by the state in ``views``: that of a moment (past.py)."""
        ...


class Stateless:
    """An authorizer that decides by the request alone, at every moment in the same way."""

    def at(self, views: FollowedViews) -> Self:
        return self


class Privileged(Stateless):
    """Allows everything to system:masters, so that no rule can lock an administrator out.

    As in kube-apiserver these rights are not listed.
    """

    def decide(self, user: User, info: RequestInfo) -> Verdict:
        return ALLOWED if GROUP_MASTERS in user.groups else NO_OPINION

    explain = decide

    def rules(self, user: User, namespace: str) -> UserRules:
        return UserRules()


class AlwaysAllow(Stateless):
    def decide(self, user: User, info: RequestInfo) -> Verdict:
        return ALLOWED

    explain = decide

    def rules(self, user: User, namespace: str) -> UserRules:
        return EVERYTHING


class AlwaysDeny(Stateless):
    """Never allows. Authorizers before it in the list may have allowed the request."""

    def decide(self, user: User, info: RequestInfo) -> Verdict:
        return Verdict(Decision.NO_OPINION, "Everything is forbidden.")

    explain = decide

    def rules(self, user: User, namespace: str) -> UserRules:
        return UserRules()


class NotInHistory(Stateless):
    """Stands for an authorizer at a moment of the past whose decisions of then the log does not have.

    It refuses to be asked. So a question that an earlier authorizer answers has its answer.
    """

    def __init__(self, type_: str) -> None:
        self._type = type_

    def decide(self, user: User, info: RequestInfo) -> NoReturn:
        raise status.method_not_allowed().with_message(
            f"{UNKNOWN_THEN.format(self._type)}; no authorizer before it decides this request"
        )

    explain = decide

    def rules(self, user: User, namespace: str) -> UserRules:
        return UserRules(errors=[UNKNOWN_THEN.format(self._type)], incomplete=True)


UNKNOWN_THEN: Final = "history does not have the past decisions of the authorizer {}"


class DecisionMetrics(Collector):
    """Decisions by type and name of the authorizer: kube-apiserver's metric of the same name."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()

    def collect(self) -> Iterable[Metric]:
        family = CounterMetricFamily(
            "apiserver_authorization_decisions",
            "Total number of terminal decisions made by an authorizer split by authorizer type, name, and decision.",
            labels=["type", "name", "decision"],
        )
        for labels, number in self.counts.items():
            family.add_metric(labels, number)
        return [family]


class NamedAuthorizer:
    """An authorizer of the configuration. Its name precedes the reason for which it has no opinion, as since v1.37.

    Its final decisions are counted in ``counts``.
    """

    __slots__ = ("_authorizer", "_counts", "_labels", "name", "rules", "type")

    def __init__(self, type_: str, name: str, authorizer: Authorizer, counts: Counter[tuple[str, str, str]]) -> None:
        self.type = type_
        self.name = name
        self._authorizer = authorizer
        self._counts = counts
        self._labels = {Decision.ALLOW: (type_, name, "allowed"), Decision.DENY: (type_, name, "denied")}
        self.rules = authorizer.rules

    def decide(self, user: User, info: RequestInfo) -> Verdict:
        return self._named(self._authorizer.decide(user, info))

    def explain(self, user: User, info: RequestInfo) -> Verdict:
        return self._named(self._authorizer.explain(user, info))

    def at(self, views: FollowedViews) -> Authorizer:
        """Return the authorizer at a moment. Its decisions are not counted among those of requests."""
        return NamedAuthorizer(self.type, self.name, self._authorizer.at(views), Counter())

    def _named(self, verdict: Verdict) -> Verdict:
        if verdict.decision is not Decision.NO_OPINION:
            self._counts[self._labels[verdict.decision]] += 1
        elif verdict.reason:
            return Verdict(verdict.decision, f"{self.name}: {verdict.reason}", verdict.error)
        return verdict


class AuthorizationChain:
    def __init__(self, authorizers: Sequence[Authorizer]) -> None:
        self._authorizers: tuple[Authorizer, ...] = ()
        self._decide_functions: tuple[Decide, ...] = ()
        self._explain_functions: tuple[Decide, ...] = ()
        self.replace(authorizers)

    def replace(self, authorizers: Sequence[Authorizer]) -> None:
        """Use these authorizers from the next decision on. A decision that is retried uses only the new ones."""
        self._authorizers = tuple(authorizers)
        self._decide_functions = tuple(authorizer.decide for authorizer in authorizers)
        self._explain_functions = tuple(authorizer.explain for authorizer in authorizers)

    def decide(self, user: User, info: RequestInfo) -> Verdict:
        """Return the first ALLOW or DENY, otherwise NO_OPINION with all reasons.

        Raises NeedsExternalAnswer (actors/external_answers.py) if an authorizer must ask another server first.
        """
        return self._first_opinion(self._decide_functions, user, info)

    def explain(self, user: User, info: RequestInfo) -> Verdict:
        """Return the same verdict as ``decide``, with its reason."""
        return self._first_opinion(self._explain_functions, user, info)

    def rules(self, user: User, namespace: str) -> UserRules:
        """Return the rules of all authorizers, in their order."""
        lists = [authorizer.rules(user, namespace) for authorizer in self._authorizers]
        return UserRules(
            list(chain.from_iterable(each.rules for each in lists)),
            [error for each in lists for error in each.errors],
            any(each.incomplete for each in lists),
            sum(each.size for each in lists),
        )

    def types(self) -> list[str]:
        """Return the types of the configured authorizers, in their order."""
        return [each.type for each in self._authorizers if isinstance(each, NamedAuthorizer)]

    def at(self, views: FollowedViews) -> AuthorizationChain:
        """Return the chain of the same authorizers, deciding by the state in ``views``."""
        return AuthorizationChain([authorizer.at(views) for authorizer in self._authorizers])

    @staticmethod
    def _first_opinion(functions: Sequence[Decide], user: User, info: RequestInfo) -> Verdict:
        reasons: list[str] = []
        errors: list[str] = []
        for decide in functions:
            verdict = decide(user, info)
            if verdict.decision is not Decision.NO_OPINION:
                return verdict
            if verdict.reason:
                reasons.append(verdict.reason)
            if verdict.error:
                errors.append(verdict.error)
        if not reasons and not errors:
            return NO_OPINION
        return Verdict(Decision.NO_OPINION, "\n".join(reasons), aggregate(errors))


def aggregate(errors: Sequence[str]) -> str:
    """Return several errors as one text, without duplicates (k8s.io/apimachinery/pkg/util/errors)."""
    distinct = list(dict.fromkeys(errors))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]" if distinct else ""


def forbidden(user: User, info: RequestInfo, reason: str = "") -> StatusError:
    """Return the 403 for a request that no authorizer allows."""
    return status.forbidden(info, info.name, forbidden_message(user.name, info, reason))


def authorized_as(info: RequestInfo) -> RequestInfo:
    """Return the info to authorize: a list or watch of one object by name needs the right to that object only
    (RequestInfo resolver of k8s.io/apiserver)."""
    if not info.field_selector or info.verb == "deletecollection":
        return info
    name = value_required(info.field_selector, "metadata.name")
    return replace(info, name=name) if name and not path_segment(name) else info
