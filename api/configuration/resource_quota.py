"""The configuration of ResourceQuota (kube-apiserver's ``pkg/admission/plugin/resourcequota/config.go``).

apiVersion: apiserver.config.k8s.io/v1
kind: ResourceQuotaConfiguration
limitedResources:
- resource: pods
  matchScopes: [{scopeName: PriorityClass, operator: In, values: [high]}]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kubechronicle.api.configuration.files import ConfigFileError, decode_document
from kubechronicle.api.errors.field_errors import aggregate, required
from kubechronicle.api.quota.limited import LimitedResource
from kubechronicle.api.quota.scopes import Selector

KINDS: Final = (
    ("apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration"),
    ("resourcequota.admission.k8s.io/v1beta1", "Configuration"),
    ("resourcequota.admission.k8s.io/v1alpha1", "Configuration"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _MatchScope:
    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _LimitedResource:
    api_group: str = ""
    resource: str = ""
    match_contains: tuple[str, ...] = ()
    match_scopes: tuple[_MatchScope, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    limited_resources: tuple[_LimitedResource, ...] = ()


def limited_resources(document: Any) -> tuple[LimitedResource, ...]:
    """Return what may be consumed only where a quota covers it. Raises ConfigFileError."""
    if document is None:
        return ()
    given = decode_document(document, Configuration, KINDS).limited_resources
    causes = [required(f"limitedResources[{i}].resource") for i, each in enumerate(given) if not each.resource]
    if causes:
        raise ConfigFileError(aggregate(causes))
    return tuple(
        LimitedResource(
            resource=f"{each.resource}.{each.api_group}" if each.api_group else each.resource,
            contains=each.match_contains,
            scopes=tuple(Selector(scope.scope_name, scope.operator, scope.values) for scope in each.match_scopes),
        )
        for each in given
    )
