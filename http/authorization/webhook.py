"""The webhook authorizer: another server decides about requests, asked with SubjectAccessReviews
(plugin/pkg/authorizer/webhook of k8s.io/apiserver).

    not matched by its conditions      no opinion, without a review
    allowed / denied / neither         allow, deny, no opinion, with the webhook's reason; cached
    no usable answer                   no opinion or deny, as configured, and an error; not cached

A decision is made from the cache, or NeedsExternalAnswer is raised and the decision is retried with the answer. An
answer is cached for ``authorized_ttl`` or ``unauthorized_ttl`` seconds. If that is 0, or the client chose too large
values, it is used for this decision only. While both are above 0, concurrent equal decisions share one review.
Otherwise each sends its own, so that no answer is older than its request.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import chain
from typing import Any, Final

from prometheus_client import Counter, Histogram
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from kubechronicle.actors.external_answers import NeedsExternalAnswer, recall_answer, remember_answer
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.api.selectors.field_selectors import field_terms, parse_label_selector
from kubechronicle.http.authentication.user import User
from kubechronicle.http.authorization.decision import NO_OPINION, Decision, NotInHistory, UserRules, Verdict
from kubechronicle.http.authorization.view_follower import FollowedViews
from kubechronicle.http.outgoing import backoff, reviews
from kubechronicle.http.outgoing.backoff import BACKOFF, Backoff, RateLimitedLog
from kubechronicle.http.outgoing.client import Answer, AskError, OutgoingClient
from kubechronicle.http.outgoing.single_flight import SingleFlight, TtlCache

log = logging.getLogger(__name__)

KIND: Final = "SubjectAccessReview"
GROUP: Final = "authorization.k8s.io"
VERSIONS: Final = ("v1", "v1beta1")
# Cached answers. An answer is not cached if the client chose more characters than this, or the user has more.
CACHE_SIZE: Final = 8192
MAX_CHOSEN: Final = 10_000
MAX_USER: Final = 64 * 1024
AUTHORIZED_TTL, UNAUTHORIZED_TTL = 300.0, 30.0

NO_RULES: Final = UserRules((), ("webhook authorizer does not support user rule resolution",), incomplete=True)
BOTH: Final = "webhook subject access review returned both allow and deny response"

Spec = Mapping[str, Any]
"""A SubjectAccessReviewSpec (v1) without empty fields."""


class MatchFailed(Exception):
    """A match condition failed, and none is false."""


class WebhookMetrics(Collector):
    """Metrics of all webhook authorizers, by name: kube-apiserver's."""

    def __init__(self) -> None:
        labels = ("name", "result")
        self.evaluations = Counter(
            "apiserver_authorization_webhook_evaluations",
            "Round-trips to authorization webhooks.",
            labels,
            registry=None,
        )
        self.durations = Histogram(
            "apiserver_authorization_webhook_duration_seconds",
            "Request latency in seconds.",
            labels,
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
            registry=None,
        )
        self.fail_open = Counter(
            "apiserver_authorization_webhook_evaluations_fail_open",
            "NoOpinion results due to webhook timeout or error.",
            labels,
            registry=None,
        )

    def observe(self, name: str, result: str, seconds: float) -> None:
        self.evaluations.labels(name, result).inc()
        self.durations.labels(name, result).observe(seconds)

    def collect(self) -> Iterable[Metric]:
        for family in (self.evaluations, self.durations, self.fail_open):
            yield from family.collect()


class WebhookAuthorizer:
    """The authorizer.

    ``client``: sends the reviews, within its timeout
    ``version``: the API version of the reviews
    ``authorized_ttl``, ``unauthorized_ttl``: seconds for which answers are cached
    ``on_error``: DENY or NO_OPINION, the decision without an answer
    ``matches(spec)``: whether the webhook is asked; raises MatchFailed
    ``clock``: monotonic, in seconds
    """

    def __init__(
        self,
        name: str,
        client: OutgoingClient,
        *,
        version: str = "v1",
        authorized_ttl: float = AUTHORIZED_TTL,
        unauthorized_ttl: float = UNAUTHORIZED_TTL,
        on_error: Decision = Decision.NO_OPINION,
        matches: Callable[[Spec], bool] | None = None,
        metrics: WebhookMetrics | None = None,
        backoff: Backoff = BACKOFF,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.client = client
        self._version = version
        self._ttls = {True: authorized_ttl, False: unauthorized_ttl}
        self._shares = min(authorized_ttl, unauthorized_ttl) > 0
        self._on_error = on_error
        self._matches = matches
        self._metrics = metrics if metrics is not None else WebhookMetrics()
        self._backoff = backoff
        self._cache: TtlCache[Verdict] = TtlCache(CACHE_SIZE, clock)
        self._single_flight: SingleFlight[tuple[Verdict, float]] = SingleFlight(client.outgoing)
        self._error_log = RateLimitedLog(log, "Failed to make webhook authorizer request")

    def decide(self, user: User, info: RequestInfo) -> Verdict:
        """Implement Authorizer. Raises NeedsExternalAnswer if the webhook must be asked."""
        key = _key_of(user, info)
        verdict = recall_answer((self, key))
        if isinstance(verdict, Verdict):
            return verdict
        if self._matches is not None:
            try:
                if not self._matches(spec_of(user, info)):
                    return NO_OPINION
            except MatchFailed as error:
                return Verdict(self._on_error, "", str(error))
        cached = self._cache.get(key)
        if cached is None:
            raise _Question(self, key, spec_of(user, info), _is_small(user, info))
        return cached

    explain = decide

    def rules(self, user: User, namespace: str) -> UserRules:
        return NO_RULES

    def at(self, views: FollowedViews) -> NotInHistory:
        return NotInHistory(f"Webhook {self.name}")

    async def _resolve(self, question: _Question) -> None:
        ask = partial(self._ask, question.spec)
        try:
            if self._shares:
                verdict, ttl = await self._single_flight.join(question.key, ask)
            else:
                verdict, ttl = await ask()
        except AskError as error:
            verdict, ttl = Verdict(self._on_error, "", str(error)), 0.0
        remember_answer((self, question.key), verdict)
        if question.small:
            self._cache.put(question.key, verdict, ttl)

    async def _ask(self, spec: Spec) -> tuple[Verdict, float]:
        """Ask the webhook. Returns its verdict, and the seconds for which it may be cached."""
        last = backoff.ERROR

        def observe(result: str, seconds: float) -> None:
            nonlocal last
            last = result
            self._metrics.observe(self.name, result, seconds)

        body = reviews.review(KIND, f"{GROUP}/{self._version}", _sent(spec, self._version), {"allowed": False})
        try:
            return await backoff.ask_patiently(self.client, body, self._read, backoff=self._backoff, observe=observe)
        except AskError as error:
            self._error_log.error(str(error), authorizer=self.name)
            if self._on_error is Decision.NO_OPINION:
                self._metrics.fail_open.labels(self.name, last).inc()
            return Verdict(self._on_error, "", str(error)), 0.0

    def _read(self, answer: Answer) -> tuple[Verdict, float]:
        """Return the verdict of an answer, and the seconds for which it may be cached. Raises AskError."""
        status = reviews.status_of(answer, KIND, f"{GROUP}/{self._version}")
        allowed, denied = reviews.flag(status, "allowed"), reviews.flag(status, "denied")
        reason = reviews.text(status, "reason")
        reviews.text(status, "evaluationError")
        if denied:
            verdict = Verdict(Decision.DENY, reason, BOTH if allowed else "")
        else:
            verdict = Verdict(Decision.ALLOW if allowed else Decision.NO_OPINION, reason)
        return verdict, self._ttls[allowed]


class _Question(NeedsExternalAnswer):
    """A review to send. ``small``: its answer may be cached."""

    def __init__(self, authorizer: WebhookAuthorizer, key: object, spec: Spec, small: bool) -> None:
        super().__init__("a webhook has to be asked")
        self.key = key
        self.spec = spec
        self.small = small
        self._authorizer = authorizer

    async def resolve(self) -> None:
        await self._authorizer._resolve(self)


def _key_of(user: User, info: RequestInfo) -> tuple[object, ...]:
    """Return the cache key: all fields of the review. Requests with equal reviews are equal to the webhook."""
    extra = tuple((name, tuple(values)) for name, values in sorted(user.extra.items())) if user.extra else ()
    if not info.is_resource:
        return (user.name, user.uid, user.groups, extra, info.verb, info.path)
    return (
        user.name,
        user.uid,
        user.groups,
        extra,
        info.verb,
        info.namespace,
        info.group,
        info.version,
        info.resource,
        info.subresource,
        info.name,
        info.field_selector,
        info.label_selector,
    )


def _is_small(user: User, info: RequestInfo) -> bool:
    """Return whether the answer may be cached.

    The user is bounded as well, because reviews choose it; kube-apiserver does not bound it.
    """
    of_user = (user.name, user.uid, *user.groups, *user.extra, *chain.from_iterable(user.extra.values()))
    chosen = (
        info.namespace,
        info.verb,
        info.group,
        info.version,
        info.resource,
        info.subresource,
        info.name,
        info.path,
        info.field_selector,
        info.label_selector,
    )
    return sum(map(len, chosen)) < MAX_CHOSEN and sum(map(len, of_user)) + len(of_user) < MAX_USER


# -- the review -------------------------------------------------------------------------------------------------------


def spec_of(user: User, info: RequestInfo) -> dict[str, Any]:
    """Return the SubjectAccessReviewSpec (v1) of a request, without empty fields."""
    spec: dict[str, Any] = {"user": user.name, "groups": list(user.groups), "uid": user.uid}
    spec["extra"] = {key: list(values) for key, values in user.extra.items()}
    if info.is_resource:
        attributes: dict[str, Any] = {
            "namespace": info.namespace,
            "verb": info.verb,
            "group": info.group,
            "version": info.version,
            "resource": info.resource,
            "subresource": info.subresource,
            "name": info.name,
        }
        for name, requirements in (
            ("fieldSelector", _field_requirements(info.field_selector)),
            ("labelSelector", _label_requirements(info.label_selector)),
        ):
            if requirements:
                attributes[name] = {"requirements": requirements}
        spec["resourceAttributes"] = _filled(attributes)
    else:
        spec["nonResourceAttributes"] = _filled({"path": info.path, "verb": info.verb})
    return {name: value for name, value in spec.items() if value or name.endswith("Attributes")}


def _filled(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}


def _field_requirements(selector: str) -> list[dict[str, Any]]:
    """Return the requirements of a field selector. An invalid one has none: the broader right is needed."""
    terms = (field_terms(selector) if selector else None) or ()
    return [{"key": term.field, "operator": "In" if term.equal else "NotIn", "values": [term.value]} for term in terms]


OPERATORS: Final[Mapping[str, str]] = {
    "=": "In", "==": "In", "in": "In", "!=": "NotIn", "notin": "NotIn", "exists": "Exists", "!": "DoesNotExist",
}  # fmt: skip
"""Operators of label selectors in a review. Other operators are left out of it."""


def _label_requirements(selector: str) -> list[dict[str, Any]]:
    if not selector:
        return []
    try:
        requirements = parse_label_selector(selector).requirements
    except StatusError:
        return []
    return [
        _filled({"key": each.key, "operator": OPERATORS[each.operator], "values": list(each.values)})
        for each in requirements
        if each.operator in OPERATORS
    ]


def _sent(spec: Spec, version: str) -> Spec:
    """Rename ``groups`` for v1beta1, where the field is ``group``."""
    if version == "v1" or "groups" not in spec:
        return spec
    return {"group" if name == "groups" else name: value for name, value in spec.items()}
