"""The formats of +k8s:format, syntaxes of texts; and the rules that Kubernetes writes by hand beside the tags.

The texts are those of k8s.io/apimachinery's ``pkg/api/validate``, which counts bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kubechronicle.api.declarative.rules import Rule, RuleOperation, text
from kubechronicle.api.errors.field_errors import Cause, go_quote, invalid_value, required, too_long
from kubechronicle.api.values import names

_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z").match
_QUOTA_PREFIX: Final = "requests."
_OWN_DOMAIN: Final = "kubernetes.io/"
_POOL_MAX: Final = 253
_DOMAIN_MAX: Final = 63
_IDENTIFIER_MAX: Final = 32


def _in_bytes(check: Callable[[str], Sequence[str]]) -> Callable[[str], Sequence[str]]:
    return lambda value: [
        problem.replace(" characters", " bytes", 1) if problem.startswith("must be no more") else problem
        for problem in check(value)
    ]


short_name: Final = _in_bytes(names.dns_label)
long_name: Final = _in_bytes(names.dns_subdomain)
caseless_long_name: Final = _in_bytes(names.dns_subdomain_of_any_case)


def prefixed_label_key(value: str) -> Sequence[str]:
    """A label key with a domain."""
    problems = names.qualified_name(value)
    return problems or ([] if "/" in value else ["must include a prefix (e.g. 'example.com/key')"])


def uuid(value: str) -> Sequence[str]:
    """A UUID (RFC 4122) in lower case."""
    return () if _UUID(value) else ("must be a lowercase UUID in 8-4-4-4-12 format",)


def extended_resource_name(value: str) -> Sequence[str]:
    """The name of an extended resource: with a domain, which is not Kubernetes' own."""
    problems = []
    if "/" not in value:
        problems.append("a name must be a domain-prefixed path, such as 'example.com/my-prop'")
    elif _OWN_DOMAIN in value:
        problems.append(f"must not have {go_quote(_OWN_DOMAIN)} domain")
    if value.startswith(_QUOTA_PREFIX):
        problems.append(f"must not have {go_quote(_QUOTA_PREFIX)} prefix")
    return [*problems, *names.qualified_name(_QUOTA_PREFIX + value)]


def _pool_name(op: RuleOperation, path: str, value: str | None, old: object) -> Sequence[Cause]:
    """Check the name of a resource pool: long names between slashes."""
    if value is None:
        return ()
    causes = [too_long(path, _POOL_MAX)] if len(value.encode()) > _POOL_MAX else []
    for index, part in enumerate(value.split("/")):
        problems = long_name(part) if part else ["must not be empty"]
        causes += [invalid_value(path, part or value, f"segment {index}: {each}") for each in problems]
    return causes


def _fully_qualified_name(op: RuleOperation, path: str, value: str | None, old: object) -> Sequence[Cause]:
    """Check a domain and a C identifier with a slash between them. More slashes are not looked at, as in Kubernetes."""
    if value is None:
        return ()
    causes: list[Cause] = []
    parts = value.split("/")
    if len(parts) == 1:
        causes += _identifier(path, value)
    elif len(parts) == 2:
        domain, name = parts
        if not domain:
            causes.append(invalid_value(path, "", "prefix must not be empty"))
        else:
            causes += [too_long(path, _DOMAIN_MAX)] if len(domain.encode()) > _DOMAIN_MAX else []
            causes += [invalid_value(path, domain, f"prefix: {problem}") for problem in long_name(domain)]
        causes += _identifier(path, name) if name else [invalid_value(path, "", "name must not be empty")]
    if len(parts) == 1:
        detail = "a fully qualified name must be a domain and a name separated by a slash"
        causes.append(invalid_value(path, value, detail))
    return causes


def _identifier(path: str, value: str) -> list[Cause]:
    causes = [too_long(path, _IDENTIFIER_MAX)] if len(value.encode()) > _IDENTIFIER_MAX else []
    return causes + [invalid_value(path, value, problem) for problem in names.c_identifier(value)]


FORMATS: Final[Mapping[str, Rule]] = {
    "k8s-extended-resource-name": text(extended_resource_name),
    "k8s-label-key": text(names.qualified_name),
    "k8s-long-name": text(long_name),
    "k8s-long-name-caseless": text(caseless_long_name),
    "k8s-path-segment-name": text(names.path_segment),
    "k8s-prefixed-label-key": text(prefixed_label_key),
    "k8s-resource-fully-qualified-name": _fully_qualified_name,
    "k8s-resource-pool-name": _pool_name,
    "k8s-short-name": text(short_name),
    "k8s-uuid": text(uuid),
}


# -- +k8s:customValidation --------------------------------------------------------------------------------------------

_RESERVED: Final = (".k8s.io", ".kubernetes.io")
_RESERVED_PRIORITIES: Final = range(1000)


def _no_reserved_domain(op: RuleOperation, path: str, value: str | None, old: object) -> Sequence[Cause]:
    """Check that the name is not in a domain of Kubernetes."""
    if value is None:
        return ()
    domain = value.partition("/")[0].lower().strip().rstrip(".")
    if not any(domain.endswith(suffix) or domain == suffix[1:] for suffix in _RESERVED):
        return ()
    listed = ", ".join(f"*{suffix}" for suffix in _RESERVED)
    return (invalid_value(path, value, f"domain names {listed} are reserved"),)


def _no_reserved_priority(op: RuleOperation, path: str, value: int | None, old: object) -> Sequence[Cause]:
    """Check that the priority is not one of Kubernetes' own responders."""
    if value not in _RESERVED_PRIORITIES:
        return ()
    return (invalid_value(path, value, "priorities 0-999 are reserved for responders with *.k8s.io suffix"),)


def _time(op: RuleOperation, path: str, value: str | None, old: object) -> Sequence[Cause]:
    """Check that the time is set."""
    return () if value else (required(path),)


CUSTOM: Final[Mapping[str, Rule]] = {
    "core.v1.EvictionResponder.name": _no_reserved_domain,
    "core.v1.EvictionResponder.priority": _no_reserved_priority,
    "lifecycle.v1alpha1.EvictionRequestSpec.requester": _no_reserved_domain,
    "meta.v1.Condition.lastTransitionTime": _time,
}
"""By type and field."""
