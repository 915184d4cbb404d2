"""The compiled audit policy: the level and the stages of a request, in about a microsecond.

The rules that may match are found once for each verb and resource, or verb and path, and kept. Of these, only the
conditions on the user, the namespace and the name are left to look at for each request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kubechronicle.api.audit import policy as policies
from kubechronicle.api.audit.events import HEAD
from kubechronicle.api.audit.policy import LEVELS, NONE, GroupResources, Policy, PolicyRule
from kubechronicle.api.meta.request_info import RequestInfo

MOST_KEPT: Final = 4096
"""Kept combinations of verb and resource or path. Clients choose them, so all are forgotten when there are more."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The recording of a request.

    ``rank``: the index of the level in LEVELS.
    ``received``, ``started``, ``complete``, ``panic``: whether the stage has an event.
    ``opening``: the beginning of each event, up to its id.
    """

    level: str
    rank: int
    received: bool
    started: bool
    complete: bool
    panic: bool
    omit_managed_fields: bool
    opening: bytes


class _Candidate(NamedTuple):
    """A rule for one verb and resource, with the conditions that are left; None: no condition."""

    users: frozenset[str] | None
    groups: frozenset[str] | None
    namespaces: frozenset[str] | None
    names: frozenset[str] | None
    decision: Decision


class Matcher:
    """A compiled policy. ``by_name``: decisions depend on the names of objects."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.by_name = any(each.resource_names for rule in policy.rules for each in rule.resources)
        self._rules = [(rule, _decision(rule.level, rule, policy)) for rule in policy.rules]
        self._otherwise = _decision(NONE, PolicyRule(), policy)
        self._kept: dict[tuple[str, ...], list[_Candidate]] = {}

    def decide(self, user: str, groups: Sequence[str], info: RequestInfo) -> Decision:
        """Return the decision of the first rule that matches.

        ``user``, ``groups``: of the authenticated user, not of an impersonated one.
        """
        if info.is_resource:
            key: tuple[str, ...] = (info.verb, info.group, info.resource, info.subresource)
        else:
            key = (info.verb, info.path)
        candidates = self._kept.get(key)
        if candidates is None:
            candidates = self._keep(key, info)
        for users, of_groups, namespaces, names, decision in candidates:
            if (
                (users is None or user in users)
                and (namespaces is None or info.namespace in namespaces)
                and (names is None or info.name in names)
                and (of_groups is None or not of_groups.isdisjoint(groups))
            ):
                return decision
        return self._otherwise

    def _keep(self, key: tuple[str, ...], info: RequestInfo) -> list[_Candidate]:
        found = []
        for rule, decision in self._rules:
            candidate = _candidate(rule, decision, info)
            if candidate is not None:
                found.append(candidate)
                if candidate[:4] == (None, None, None, None):
                    break  # it always matches
        if len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        self._kept[key] = found
        return found


def _decision(level: str, rule: PolicyRule, policy: Policy) -> Decision:
    omitted = {*policy.omit_stages, *rule.omit_stages}
    omits_fields = policy.omit_managed_fields if rule.omit_managed_fields is None else rule.omit_managed_fields
    received, started, complete, panic = (stage not in omitted for stage in policies.STAGES)
    opening = HEAD + f'"level":"{level}","auditID":'.encode()
    return Decision(level, LEVELS.index(level), received, started, complete, panic, omits_fields, opening)


def _candidate(rule: PolicyRule, decision: Decision, info: RequestInfo) -> _Candidate | None:
    """Return what is left of a rule for this verb and resource or path; None if the rule cannot match."""
    if rule.verbs and info.verb not in rule.verbs:
        return None
    names: frozenset[str] | None = None
    if rule.namespaces or rule.resources:
        if not info.is_resource:
            return None
        if rule.resources:
            matching = [each for each in rule.resources if _names_resource(each, info)]
            if not matching:
                return None
            if all(each.resources and each.resource_names for each in matching):
                names = frozenset(name for each in matching for name in each.resource_names)
    elif rule.non_resource_urls and (
        info.is_resource or not any(_matches_path(url, info.path) for url in rule.non_resource_urls)
    ):
        return None
    return _Candidate(_set(rule.users), _set(rule.user_groups), _set(rule.namespaces), names, decision)


def _set(values: Sequence[str]) -> frozenset[str] | None:
    return frozenset(values) if values else None


def _names_resource(wanted: GroupResources, info: RequestInfo) -> bool:
    if wanted.group not in (info.group, "*"):
        return False
    return not wanted.resources or any(_matches_resource(each, info) for each in wanted.resources)


def _matches_resource(wanted: str, info: RequestInfo) -> bool:
    """Tell whether ``pods``, ``pods/log``, ``pods/*``, ``*/scale`` or ``*`` names the resource and subresource.

    ``pods`` is the resource without subresources; ``pods/*`` is both.
    """
    combined = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    if wanted in (combined, "*"):
        return True
    if info.subresource and wanted.startswith("*/") and wanted[2:] == info.subresource:
        return True
    return wanted.endswith("/*") and wanted[:-2] == info.resource


def _matches_path(wanted: str, path: str) -> bool:
    return wanted in ("*", path) or (wanted.endswith("*") and path.startswith(wanted.rstrip("*")))
