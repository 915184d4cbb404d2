"""The webhooks of all configurations, compiled once for each version of a configuration.

Source: k8s.io/apiserver ``pkg/admission/configuration``, ``pkg/admission/plugin/webhook/accessors.go``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import orjson

from kubechronicle.actors.admission.chain import AdmissionState
from kubechronicle.actors.external_answers import in_steps
from kubechronicle.api.admission.matching import EXEMPT_GROUP, EXEMPT_KINDS, Conditions, Index, Rules, Selectors
from kubechronicle.api.builtin.admissionregistration.webhooks import VIRTUAL_RESOURCES
from kubechronicle.api.configuration.admission_manifests import Manifests
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.steps import Steps
from kubechronicle.eventlog.entries import Entry

MUTATING: Final = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
VALIDATING: Final = "validatingwebhookconfigurations.admissionregistration.k8s.io"
TIMEOUT: Final = 10
"""Seconds, where a stored configuration has none."""


class Webhook:
    """One webhook of a configuration.

    ``uid``: tells it from all others. ``version``: the configuration's uid and generation.
    ``ignores``: it allows what it cannot be asked about. ``dry_runs``: a dry run may be sent to it.
    ``reinvoked``: it is asked again if a later one changes the object.
    """

    def __init__(self, spec: Mapping[str, Any], configuration: str, place: int, version: str) -> None:
        self.name: str = spec["name"]
        self.configuration = configuration
        self.uid = f"{configuration}/{self.name}/{place}"
        self.version = version
        self.client: Mapping[str, Any] = spec.get("clientConfig") or {}
        self.timeout: float = spec.get("timeoutSeconds") or TIMEOUT
        self.ignores = spec.get("failurePolicy") == "Ignore"
        self.reinvoked = spec.get("reinvocationPolicy") == "IfNeeded"
        self.dry_runs = spec.get("sideEffects") in ("None", "NoneOnDryRun")
        self.review_versions: Sequence[str] = spec.get("admissionReviewVersions") or ()
        self.rules = Rules(spec.get("rules"), spec.get("matchPolicy"))
        self.selectors = Selectors(spec)
        self._conditions: Sequence[Mapping[str, Any]] = spec.get("matchConditions") or ()

    @property
    def has_conditions(self) -> bool:
        return bool(self._conditions)

    def matches(self, values: Mapping[str, Any]) -> bool:
        """Tell whether all match conditions hold. They are compiled at the first use. ConditionsFailed."""
        return self._compiled.match(values)

    @cached_property
    def _compiled(self) -> Conditions:
        return Conditions(self._conditions)


class Placed(NamedTuple):
    """A webhook, and its index among all webhooks."""

    place: int
    webhook: Webhook


class Configurations:
    """The webhooks of one plugin: those of files (KEP-5793), then those of a resource, by their configurations' names.

    Those of files alone are asked about configurations and policies. ``review_reviews``: they are asked about access
    reviews, too; else a webhook that fails could lock everybody out.
    """

    def __init__(self, resource: str, plugin: str, *, review_reviews: bool = False) -> None:
        self._review_reviews = review_reviews
        self._resource = resource
        self._plugin = plugin
        self._static: Manifests | None = None
        self._static_webhooks: list[Webhook] = []
        self._static_index: Index[Placed] = Index(())
        self._entries: Sequence[Entry] = ()
        self._compiled: dict[str, tuple[Entry, list[Webhook]]] = {}
        self._index: Index[Placed] = Index(())

    def index(self, state: AdmissionState, rt: ResourceType) -> Index[Placed] | None:
        """Return the index of all webhooks for a type, as of this replica's view; None if there are none."""
        if state.manifests and (manifests := state.manifests.get(self._plugin)) is not None:
            self._take(manifests.current)
        if not self._review_reviews and not rt.stored and rt.group_resource in VIRTUAL_RESOURCES:
            return None
        if rt.group == EXEMPT_GROUP and rt.kind in EXEMPT_KINDS:
            return self._static_index if self._static_webhooks else None
        entries = state.held[self._resource]
        if not entries and not self._static_webhooks:
            return None
        if entries is not self._entries:  # a view returns the same tuple until it changes
            in_steps(("webhooks", self._plugin, id(entries)), self._compile_all(entries))
        return self._index

    def _compile_all(self, entries: Sequence[Entry]) -> Steps[None]:
        compiled = {}
        for entry in entries:
            compiled[entry.key.name] = yield from self._compile(entry)
            yield
        self._entries, self._compiled = entries, compiled
        self._index = _index(self._webhooks())

    def _take(self, manifests: Manifests) -> None:
        """Take webhooks from files, unless they are in force already."""
        if manifests is self._static:
            return
        self._static, known = manifests, {each.uid: each for each in self._static_webhooks}
        self._static_webhooks = []
        for obj in manifests.configurations:
            name = obj["metadata"]["name"]
            version = hashlib.sha256(orjson.dumps(obj)).hexdigest()
            for place, spec in enumerate(obj.get("webhooks") or ()):
                made = Webhook(spec, f"manifest/{name}", place, version)
                made.configuration = name
                same = known.get(made.uid)
                self._static_webhooks.append(same if same is not None and same.version == version else made)
        self._static_index = _index(self._static_webhooks)
        self._index = _index(self._webhooks())

    def _compile(self, entry: Entry) -> Steps[tuple[Entry, list[Webhook]]]:
        known = self._compiled.get(entry.key.name)
        if known is not None and known[0] is entry:
            return known
        obj = entry.object()
        version = f"{entry.uid} {obj['metadata'].get('generation', 0)}"
        found = []
        for place, spec in enumerate(obj.get("webhooks") or ()):
            found.append(Webhook(spec, entry.key.name, place, version))
            yield
        return entry, found

    def _webhooks(self) -> Iterator[Webhook]:
        yield from self._static_webhooks
        for _, found in self._compiled.values():
            yield from found


def _index(webhooks: Iterable[Webhook]) -> Index[Placed]:
    placed = [Placed(place, webhook) for place, webhook in enumerate(webhooks)]
    return Index((each, each.webhook.rules.match) for each in placed)
