"""Settings of retention: --history-retention and --history-retention-file, over the defaults.

A policy is written as AGE[,CHANGES]: ``30d``, ``12h30m``, ``forever``, ``30d,100000``. A flag overrides the file, and
the file the defaults, for each resource.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

import yaml

from kubechronicle.api.configuration.structuring import structure
from kubechronicle.eventlog.retention.retention import DEFAULT_POLICIES, OTHERS, RetentionPolicy
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.settings import types
from kubechronicle.ops.settings.conversion import converter
from kubechronicle.ops.settings.settings import Settings

FOREVER = "forever"
# Clients that read a list page by page, or resume a watch, need these: kube-apiserver compacts after 5 minutes.
SHORTEST = timedelta(minutes=5)
FEWEST_CHANGES = 100
_LONGEST_DAYS = 36500
_DAYS = re.compile(r"(\d{1,5})d(.*)")
_RESOURCE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionEntry:
    """An entry of the file. ``changes``: a number, or a text of digits."""

    resource: str
    age: str = FOREVER
    changes: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionFile:
    """The file of --history-retention-file."""

    retention: tuple[RetentionEntry, ...]


def retention_policies(settings: Settings) -> tuple[RetentionPolicy, ...]:
    """Return one policy per named resource, and one for all others. Raise OperatorError."""
    policies = {policy.resource: policy for policy in DEFAULT_POLICIES}
    if settings.history_retention_file is not None:
        named = _policies("--history-retention-file", partial(_read, settings.history_retention_file))
        policies.update((policy.resource, policy) for policy in named)
    if settings.history_retention is not None:
        pairs = settings.history_retention.pairs
        named = _policies("--history-retention", lambda: [_parse(resource, text) for resource, text in pairs])
        policies.update((policy.resource, policy) for policy in named)
    return tuple(policies.values())


def _policies(flag: str, parse: Callable[[], Iterable[RetentionPolicy]]) -> list[RetentionPolicy]:
    try:
        return list(parse())
    except ValueError as error:
        raise OperatorError(f"{flag}: {error}") from None


def _parse(resource: str, text: str) -> RetentionPolicy:
    age, comma, changes = text.partition(",")
    return _policy(resource, age, changes if comma else None)


def _read(path: Path) -> Iterable[RetentionPolicy]:
    try:
        document = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not YAML: {str(error).splitlines()[0]}") from None
    policies: dict[str, RetentionPolicy] = {}
    for entry in structure(document, RetentionFile, file=str(path)).retention:
        try:
            policy = _policy(entry.resource, entry.age, entry.changes)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        if policy.resource in policies:
            raise ValueError(f"{path}: {policy.resource} is listed twice")
        policies[policy.resource] = policy
    return policies.values()


def _policy(resource: str, age: str, changes: object) -> RetentionPolicy:
    if resource != OTHERS and not _RESOURCE.fullmatch(resource):
        raise ValueError(f"{resource!r} is no resource; name it as pods, or with its group as deployments.apps")
    if resource == OTHERS and changes is not None:
        raise ValueError(f"{OTHERS} takes an age alone: changes are counted by resource")
    max_age = _age(resource, age.strip())
    if changes is None:
        return RetentionPolicy(resource=resource, max_age=max_age)
    text = str(changes).strip()
    if isinstance(changes, bool) or not re.fullmatch(r"\d{1,12}", text) or int(text) < FEWEST_CHANGES:
        raise ValueError(f"{resource}: the number of changes must be {FEWEST_CHANGES} or more, got {text!r}")
    return RetentionPolicy(resource=resource, max_age=max_age, max_changes=int(text))


def _age(resource: str, text: str) -> timedelta | None:
    if text == FOREVER:
        return None
    days = _DAYS.fullmatch(text)
    rest = days[2] if days else text
    try:
        seconds = converter().structure(rest, types.Seconds) if rest or not days else 0.0
        age = timedelta(days=int(days[1]) if days else 0, seconds=seconds)
    except (ValueError, OverflowError):
        raise ValueError(f"{resource}: the age must be such as 30d, 12h or {FOREVER}, got {text!r}") from None
    if not SHORTEST <= age <= timedelta(days=_LONGEST_DAYS):
        raise ValueError(f"{resource}: the age must be 5m to {_LONGEST_DAYS}d, or {FOREVER}; got {text!r}")
    return age
