"""How long history is kept, from the settings: --history-retention and --history-retention-file, over the defaults.

A policy is written as AGE[,CHANGES]: ``30d``, ``12h30m``, ``forever``, ``30d,100000``. For each resource, a flag goes
before the file, the file before the defaults.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from kubechronicle.eventlog.retention.retention import DEFAULT_POLICIES, OTHERS, RetentionPolicy
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.settings import types
from kubechronicle.ops.settings.settings import Settings

FOREVER = "forever"
# Whoever reads a list page by page, or comes back to a watch, is within these: kube-apiserver compacts after 5 minutes.
SHORTEST = timedelta(minutes=5)
FEWEST = 100
_LONGEST_DAYS = 36500
_DAYS = re.compile(r"(\d{1,5})d(.*)")
_RESOURCE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_KEYS = {"resource", "age", "changes"}


def retention_policies(settings: Settings) -> tuple[RetentionPolicy, ...]:
    """One policy per resource named anywhere, and that of all others. OperatorError."""
    policies = {policy.resource: policy for policy in DEFAULT_POLICIES}
    if settings.history_retention_file is not None:
        named = _told("--history-retention-file", partial(_read, settings.history_retention_file))
        policies.update((policy.resource, policy) for policy in named)
    if settings.history_retention is not None:
        pairs = settings.history_retention.pairs
        named = _told("--history-retention", lambda: [_of_text(resource, text) for resource, text in pairs])
        policies.update((policy.resource, policy) for policy in named)
    return tuple(policies.values())


def _told(flag: str, parse: Callable[[], Iterable[RetentionPolicy]]) -> list[RetentionPolicy]:
    try:
        return list(parse())
    except ValueError as error:
        raise OperatorError(f"{flag}: {error}") from None


def _of_text(resource: str, text: str) -> RetentionPolicy:
    age, comma, changes = text.partition(",")
    return _policy(resource, age, changes if comma else None)


def _read(path: Path) -> Iterable[RetentionPolicy]:
    try:
        document = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not YAML: {str(error).splitlines()[0]}") from None
    entries = document.get("retention") if isinstance(document, dict) and set(document) == {"retention"} else None
    if not isinstance(entries, list):
        raise ValueError(f"{path} must be a mapping of `retention` to a list")
    found: dict[str, RetentionPolicy] = {}
    for entry in entries:
        if not isinstance(entry, dict) or not {"resource"} <= set(entry) <= _KEYS:
            raise ValueError(f"{path}: an entry has `resource`, `age` and maybe `changes`, got {entry!r}")
        policy = _policy(str(entry["resource"]), entry.get("age", FOREVER), entry.get("changes"))
        if policy.resource in found:
            raise ValueError(f"{path}: {policy.resource} is there twice")
        found[policy.resource] = policy
    return found.values()


def _policy(resource: str, age: Any, changes: Any) -> RetentionPolicy:
    if resource != OTHERS and not _RESOURCE.fullmatch(resource):
        raise ValueError(f"{resource!r} is no resource; name it as pods, or with its group as deployments.apps")
    if resource == OTHERS and changes is not None:
        raise ValueError(f"{OTHERS} takes an age alone: changes are counted by resource")
    max_age = _age(resource, str(age).strip())
    if changes is None:
        return RetentionPolicy(resource=resource, max_age=max_age)
    text = str(changes).strip()
    if isinstance(changes, bool) or not re.fullmatch(r"\d{1,12}", text) or int(text) < FEWEST:
        raise ValueError(f"{resource}: the number of changes must be {FEWEST} or more, got {text!r}")
    return RetentionPolicy(resource=resource, max_age=max_age, max_changes=int(text))


def _age(resource: str, text: str) -> timedelta | None:
    if text == FOREVER:
        return None
    days = _DAYS.fullmatch(text)
    rest = days[2] if days else text
    try:
        seconds = types.make_converter().structure(rest, types.Seconds) if rest or not days else 0.0
        age = timedelta(days=int(days[1]) if days else 0, seconds=seconds)
    except (ValueError, OverflowError):
        raise ValueError(f"{resource}: the age must be such as 30d, 12h or {FOREVER}, got {text!r}") from None
    if not SHORTEST <= age <= timedelta(days=_LONGEST_DAYS):
        raise ValueError(f"{resource}: the age must be 5m to {_LONGEST_DAYS}d, or {FOREVER}; got {text!r}")
    return age
