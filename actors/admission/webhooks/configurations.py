"""The webhooks of all configurations, compiled once for each version of a configuration.

Source: k8s.io/apiserver ``pkg/admission/configuration``, ``pkg/admission/plugin/webhook/accessors.go``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

from kubechronicle.actors.admission.chain import State
from kubechronicle.api.admission.conditions import Conditions
from kubechronicle.api.admission.matching import Index, Rules, Selectors
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

    @cached_property
    def conditions(self) -> Conditions | None:
        """The match conditions, None if there are none."""
        return Conditions(self._conditions) if self._conditions else None


class Placed(NamedTuple):
    """A webhook, and its index among all webhooks."""

    place: int
    webhook: Webhook


class Configurations:
    """The webhooks of one resource, in the order of their configurations' names."""

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self._entries: Sequence[Entry] = ()
        self._compiled: dict[str, tuple[Entry, list[Webhook]]] = {}
        self._index: Index[Placed] = Index(())

    def index(self, state: State) -> Index[Placed] | None:
        """Return the index of all webhooks as of this replica's view; None if there are none."""
        entries = state.entries(self._resource, "")
        if not entries:
            return None
        if entries is not self._entries:  # a view returns the same tuple until it changes
            self._entries = entries
            self._compiled = {entry.key.name: self._compile(entry) for entry in entries}
            self._index = Index((placed, placed.webhook.rules.match) for placed in self._placed())
        return self._index

    def _compile(self, entry: Entry) -> tuple[Entry, list[Webhook]]:
        known = self._compiled.get(entry.key.name)
        if known is not None and known[0] is entry:
            return known
        obj = entry.object()
        version = f"{entry.uid} {obj['metadata'].get('generation', 0)}"
        specs = obj.get("webhooks") or ()
        return entry, [Webhook(spec, entry.key.name, place, version) for place, spec in enumerate(specs)]

    def _placed(self) -> Iterator[Placed]:
        webhooks = (webhook for _, found in self._compiled.values() for webhook in found)
        return (Placed(place, webhook) for place, webhook in enumerate(webhooks))
