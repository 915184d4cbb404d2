"""The state that admission decides on: reads of this replica's views, and the parts of the server that plugins ask."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kubechronicle.actors.admission.metrics import AdmissionMetrics
from kubechronicle.actors.reading.conversions import AskWebhook
from kubechronicle.api.admission.rejections import ImageVerdict
from kubechronicle.api.errors import status
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.api.registry.registry import Registry, known_registry
from kubechronicle.eventlog.appender import Siblings
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Who

if TYPE_CHECKING:
    from kubechronicle.api.configuration.admission_manifests import Manifests


class ImageReviews(Protocol):
    """The webhook that judges the images of pods. ``default_allow``: allow images that it cannot be asked about."""

    @property
    def default_allow(self) -> bool: ...

    def known(self, spec: bytes) -> ImageVerdict | None:
        """Return the cached answer about an ImageReviewSpec (JSON)."""
        ...

    async def ask(self, spec: bytes) -> ImageVerdict:
        """Ask, and cache the answer. Raises nothing but trio.Cancelled."""
        ...


class Permits(Protocol):
    """Ask the server's authorizers if ``who`` may do this to an object (namespace "": cluster-scoped).

    NeedsExternalAnswer: an authorizer needs an answer from outside.
    """

    def __call__(self, who: Who, verb: str, group: str, resource: str, name: str, namespace: str = "") -> bool: ...


class Judgement(NamedTuple):
    """The authorizers' answer. ``error``: the failure while they decided, "" if there was none."""

    allowed: bool
    reason: str = ""
    error: str = ""


async def _no_namespace(name: str) -> None:
    raise status.internal_error(f"namespace {name} cannot be created by admission here")


Follow = Callable[[str, Callable[[], None]], None]
"""Call a function in each step that changes the objects of a resource, before they can be read."""

Judge = Callable[[Who, RequestInfo], Judgement]
"""Ask the server's authorizers about a request of a user. NeedsExternalAnswer: as for Permits."""


class CurrentManifests:
    """The configurations of one plugin from files, as of their last reload."""

    __slots__ = ("current",)

    def __init__(self, current: Manifests) -> None:
        self.current = current


class HeldLists(dict[str, Sequence[Entry]]):
    """All objects of resources that rarely change, by resource. Each list is read once until it changes.

    ``entries``: as in AdmissionState. ``follow``: tells of changes; None: nothing does, and nothing is held.
    """

    __slots__ = ("_entries", "_follow", "_followed")

    def __init__(
        self,
        entries: Callable[[str, str], Sequence[Entry]],
        follow: Follow | None = None,
    ) -> None:
        super().__init__()
        self._entries = entries
        self._follow = follow
        self._followed: set[str] = set()

    def __missing__(self, resource: str) -> Sequence[Entry]:
        found = self._entries(resource, "")
        if self._follow is not None:
            if resource not in self._followed:
                self._followed.add(resource)
                self._follow(resource, partial(self._forget, resource))
            self[resource] = found
        return found

    def _forget(self, resource: str) -> None:
        self.pop(resource, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionState:
    """The state plugins may read: this replica's views, which may lag.

    ``peek(resource, namespace, name)``: one object.
    ``entries(resource, namespace)``: all objects of a namespace.
    ``held[resource]``: all objects of a resource that rarely changes.
    ``follow(resource, changed)``: calls ``changed`` with each change of the resource; None: nothing tells of changes.
    ``permits``: other permissions of the requester.
    ``ask``: posts to a webhook; None: the server sends no requests to others.
    ``ask_with_credentials``: the same with the credentials of a plugin, by the names of the plugins that have some.
    ``image_reviews``: the webhook that judges images, if there is one.
    ``judge``: the authorizers' answers with their reasons, about any user.
    ``registry``: returns the served types of this moment.
    ``provide_namespace``: creates a namespace, or raises StatusError.
    ``metrics``: of admission.
    ``manifests``: the configurations from files, by the plugins that have some.
    ``siblings``: of the appender that the writes go to.
    ``only_dry_runs``: webhooks are asked as for dry runs, because the writes are those of a branch.
    """

    peek: Callable[[str, str, str], Entry | None]
    entries: Callable[[str, str], Sequence[Entry]]
    follow: Follow | None = None
    permits: Permits = lambda who, verb, group, resource, name, namespace="": False
    ask: AskWebhook | None = None
    ask_with_credentials: Mapping[str, AskWebhook] = field(default_factory=dict)
    image_reviews: ImageReviews | None = None
    judge: Judge = lambda who, info: Judgement(allowed=False)
    registry: Callable[[], Registry] = known_registry
    provide_namespace: Callable[[str], Awaitable[None]] = _no_namespace
    metrics: AdmissionMetrics = field(default_factory=AdmissionMetrics)
    manifests: Mapping[str, CurrentManifests] = field(default_factory=dict)
    siblings: Siblings = field(default_factory=Siblings)
    only_dry_runs: bool = False
    held: Mapping[str, Sequence[Entry]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.held, HeldLists):
            object.__setattr__(self, "held", HeldLists(self.entries))
