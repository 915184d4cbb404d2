"""The audit policy file: kind Policy of audit.k8s.io/v1 (k8s.io/apiserver ``pkg/audit/policy``).

    rules:
    - level: None
      nonResourceURLs: ["/healthz*"]
    - level: Metadata
      resources: [{group: "", resources: [secrets]}]

As kube-apiserver does, unknown fields and repeated keys are no errors: they are ignored, and the operator is warned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final

from kubechronicle.api.codecs import json as json_codec
from kubechronicle.api.codecs import yaml as yaml_codec
from kubechronicle.api.codecs.errors import CodecError
from kubechronicle.api.configuration.files import ConfigFileError, TypeMeta, schema_of_file, structure_checked
from kubechronicle.api.configuration.structuring import FieldKey, structure
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.pipeline import bodies
from kubechronicle.api.schema import check
from kubechronicle.api.values import names

API_VERSION: Final = "audit.k8s.io/v1"
KIND: Final = "Policy"

NONE, METADATA, REQUEST, REQUEST_RESPONSE = "None", "Metadata", "Request", "RequestResponse"
LEVELS: Final = (NONE, METADATA, REQUEST, REQUEST_RESPONSE)
RECEIVED, STARTED, COMPLETE, PANIC = "RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"
STAGES: Final = (RECEIVED, STARTED, COMPLETE, PANIC)


class PolicyError(ValueError):
    """The policy cannot be used. The message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupResources:
    """Resources of one API group; ``*`` is every group. No resources: all of the group."""

    group: str = ""
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRule:
    """A rule matches a request that fits all its lists; an empty list fits every request."""

    level: str = ""
    users: tuple[str, ...] = ()
    user_groups: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    resources: tuple[GroupResources, ...] = ()
    namespaces: tuple[str, ...] = ()
    non_resource_urls: Annotated[tuple[str, ...], FieldKey("nonResourceURLs")] = ()
    omit_stages: tuple[str, ...] = ()
    omit_managed_fields: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPolicy:
    """The policy: the first rule that matches a request decides; no rule means level None."""

    rules: tuple[PolicyRule, ...] = ()
    omit_stages: tuple[str, ...] = ()
    omit_managed_fields: bool = False
    metadata: object = None


def load(data: bytes) -> tuple[AuditPolicy, list[str]]:
    """Return the policy of a YAML or JSON file, and warnings about fields that are ignored. Raises PolicyError."""
    try:
        policy, warnings = _decode(data)
    except (CodecError, ConfigFileError, check.TypeMismatch) as error:
        raise PolicyError(_one_line(f"failed decoding: {error}")) from None
    problems = list(_problems(policy))
    if problems:
        raise PolicyError(_one_line(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"))
    if not policy.rules:
        raise PolicyError("loaded illegal policy with 0 rules")
    return policy, [_one_line(warning) for warning in warnings]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _decode(data: bytes) -> tuple[AuditPolicy, list[str]]:
    if not data.strip():
        raise ConfigFileError("the file is empty")
    codec: Any = json_codec if data.lstrip().startswith(b"{") else yaml_codec
    value, repeated = codec.decode(data, strict=True)
    if not isinstance(value, dict):
        raise ConfigFileError("it must be an object")
    meta = structure(value, TypeMeta, unknown_allowed=True)
    if not meta.kind or not meta.api_version:
        raise ConfigFileError(f"Object '{'apiVersion' if meta.kind else 'Kind'}' is missing in the file")
    if (meta.api_version, meta.kind) != (API_VERSION, KIND):
        raise ConfigFileError(
            f"no kind {go_quote(meta.kind)} is registered for version {go_quote(meta.api_version)}; "
            f"it must be {KIND} of {API_VERSION}"
        )
    schema = schema_of_file(AuditPolicy)
    value, problems = bodies.with_repeated_keys(value, schema, repeated)
    unknown = check.check(value, schema)
    return structure_checked(value, AuditPolicy), bodies.strict_texts(problems, unknown)


def _problems(policy: AuditPolicy) -> Iterator[str]:
    yield from _stage_problems(policy.omit_stages, "omitStages")
    for index, rule in enumerate(policy.rules):
        path = f"rules[{index}]"
        if not rule.level:
            yield f"{path}.level: Required value"
        elif rule.level not in LEVELS:
            supported = ", ".join(f'"{level}"' for level in LEVELS)
            yield f"{path}.level: Unsupported value: {go_quote(rule.level)}: supported values: {supported}"
        yield from _url_problems(rule, f"{path}.nonResourceURLs")
        yield from _resource_problems(rule, f"{path}.resources")
        yield from _stage_problems(rule.omit_stages, f"{path}.omitStages")
        if rule.non_resource_urls and (rule.resources or rule.namespaces):
            yield f"{path}.nonResourceURLs: Invalid value: rules cannot apply to both regular resources and " \
                "non-resource URLs"  # fmt: skip


def _stage_problems(stages: tuple[str, ...], path: str) -> Iterator[str]:
    for index, stage in enumerate(stages):
        if stage not in STAGES:
            yield f"{path}[{index}]: Invalid value: {go_quote(stage)}: allowed stages are {','.join(STAGES)}"


def _url_problems(rule: PolicyRule, path: str) -> Iterator[str]:
    for index, url in enumerate(rule.non_resource_urls):
        if url == "*":
            continue
        where = f"{path}[{index}]: Invalid value: {go_quote(url)}"
        if not url.startswith("/"):
            yield f"{where}: non-resource URL rules must begin with a '/' character"
        if "*" in url[:-1]:
            yield f"{where}: non-resource URL wildcards '*' must be the final character of the rule"


def _resource_problems(rule: PolicyRule, path: str) -> Iterator[str]:
    for resources in rule.resources:
        if resources.group not in ("", "*"):
            for problem in names.dns_subdomain(resources.group):
                yield f"{path}.group: Invalid value: {go_quote(resources.group)}: {problem}"
        if resources.resource_names and not resources.resources:
            yield f"{path}.resourceNames: Invalid value: using resourceNames requires at least one resource"
