"""What an authorizer says of a request, and the chain that asks them in their order.

ALLOW and DENY are final; NO_OPINION passes the request on. A request nobody allows is forbidden, with the reasons of
those that had none to allow it (k8s.io/apiserver's union authorizer).
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.api.access.rbac import Rule
from kubechronicle.api.errors import status
from kubechronicle.api.errors.status import StatusError
from kubechronicle.http.authentication.user import GROUP_MASTERS, User
from kubechronicle.http.request_info import RequestInfo


class Decision(enum.Enum):
    ALLOW = "allow"
    DENY = "deny"
    NO_OPINION = "no opinion"


@dataclass(frozen=True, slots=True)
class Verdict:
    """``reason`` is in words, for reviews and refusals; empty where there is nothing to say. ``error``: what kept the
    authorizer from deciding as it should have; a request that is not allowed for one is answered with 500."""

    decision: Decision
    reason: str = ""
    error: str = ""


Ask = Callable[[User, RequestInfo], Verdict]
ALLOWED = Verdict(Decision.ALLOW)
NO_OPINION = Verdict(Decision.NO_OPINION)


@dataclass(frozen=True, slots=True)
class Rules:
    """What a user may do in a namespace, as far as it can be listed: PolicyRules, and what could not be resolved.
    ``incomplete``: there is more than can be listed."""

    rules: Sequence[Rule] = ()
    errors: Sequence[str] = ()
    incomplete: bool = False


EVERYTHING = Rules(
    (
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
        {"verbs": ["*"], "nonResourceURLs": ["*"]},
    )
)


class Authorizer(Protocol):
    def decide(self, user: User, info: RequestInfo) -> Verdict:
        """The quick answer, for a request under way."""
        ...

    def explain(self, user: User, info: RequestInfo) -> Verdict:
        """The same answer with its reason, for reviews."""
        ...

    def rules(self, user: User, namespace: str) -> Rules:
        """What this authorizer allows the user in the namespace, or cluster-wide."""
        ...


class Privileged:
    """system:masters may do everything, so that no rule can lock an administrator out. As in kube-apiserver that is not
    listed among the rules."""

    def decide(self, user: User, info: RequestInfo) -> Verdict:
        return ALLOWED if GROUP_MASTERS in user.groups else NO_OPINION

    explain = decide

    def rules(self, user: User, namespace: str) -> Rules:
        return Rules()


class AlwaysAllow:
    def decide(self, user: User, info: RequestInfo) -> Verdict:
        return ALLOWED

    explain = decide

    def rules(self, user: User, namespace: str) -> Rules:
        return EVERYTHING


class AlwaysDeny:
    """Passes no request on by itself; those before it in the list have had their say."""

    def decide(self, user: User, info: RequestInfo) -> Verdict:
        return Verdict(Decision.NO_OPINION, "Everything is forbidden.")

    explain = decide

    def rules(self, user: User, namespace: str) -> Rules:
        return Rules()


class DecisionMetrics(Collector):
    """How often each authorizer has decided, by its type and name: kube-apiserver's figure of the same name."""

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


class Counted:
    """An authorizer as the configuration names it. What it decides is counted; what it passes on is not."""

    __slots__ = ("_authorizer", "_counts", "_labels", "rules")

    def __init__(self, type_: str, name: str, authorizer: Authorizer, metrics: DecisionMetrics) -> None:
        self._authorizer = authorizer
        self._counts = metrics.counts
        self._labels = {Decision.ALLOW: (type_, name, "allowed"), Decision.DENY: (type_, name, "denied")}
        self.rules = authorizer.rules

    def decide(self, user: User, info: RequestInfo) -> Verdict:
        return self._counted(self._authorizer.decide(user, info))

    def explain(self, user: User, info: RequestInfo) -> Verdict:
        return self._counted(self._authorizer.explain(user, info))

    def _counted(self, verdict: Verdict) -> Verdict:
        if verdict.decision is not Decision.NO_OPINION:
            self._counts[self._labels[verdict.decision]] += 1
        return verdict


class AuthorizationChain:
    def __init__(self, authorizers: Sequence[Authorizer]) -> None:
        self._authorizers: tuple[Authorizer, ...] = ()
        self._deciding: tuple[Ask, ...] = ()
        self._explaining: tuple[Ask, ...] = ()
        self.replace(authorizers)

    def replace(self, authorizers: Sequence[Authorizer]) -> None:
        """Ask these from the next decision on. One that has to be made again is made by the new ones alone."""
        self._authorizers = tuple(authorizers)
        self._deciding = tuple(authorizer.decide for authorizer in authorizers)
        self._explaining = tuple(authorizer.explain for authorizer in authorizers)

    def decide(self, user: User, info: RequestInfo) -> Verdict:
        """ALLOW or DENY of the first that has an opinion, otherwise NO_OPINION with all reasons. NeedsExternalAnswer
        (actors/external_answers.py): one of them must ask somebody first."""
        return self._ask(self._deciding, user, info)

    def explain(self, user: User, info: RequestInfo) -> Verdict:
        """As decide, with the reason."""
        return self._ask(self._explaining, user, info)

    def rules(self, user: User, namespace: str) -> Rules:
        """What all of them allow, those of the first asked first."""
        found = [authorizer.rules(user, namespace) for authorizer in self._authorizers]
        return Rules(
            [rule for each in found for rule in each.rules],
            [error for each in found for error in each.errors],
            any(each.incomplete for each in found),
        )

    @staticmethod
    def _ask(questions: Sequence[Ask], user: User, info: RequestInfo) -> Verdict:
        reasons: list[str] = []
        errors: list[str] = []
        for ask in questions:
            verdict = ask(user, info)
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
    """Several errors as one text, each once (k8s.io/apimachinery/pkg/util/errors)."""
    found = list(dict.fromkeys(errors))
    return found[0] if len(found) == 1 else f"[{', '.join(found)}]" if found else ""


def forbidden(user: User, info: RequestInfo, reason: str = "") -> StatusError:
    """The 403 for a request that nobody allows."""
    return status.forbidden(
        info.group_resource if info.is_resource else "", info.name, forbidden_message(user, info, reason)
    )


def forbidden_message(user: User, info: RequestInfo, reason: str = "") -> str:
    """The words of k8s.io/apiserver's responsewriters.Forbidden."""
    why = f": {reason}" if reason else ""
    if not info.is_resource:
        return f'User "{user.name}" cannot {info.verb} path "{info.path}"{why}'
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    where = f'in the namespace "{info.namespace}"' if info.namespace else "at the cluster scope"
    return f'User "{user.name}" cannot {info.verb} resource "{resource}" in API group "{info.group}" {where}{why}'
