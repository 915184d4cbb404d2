"""StorageVersion: the versions in which the API servers of a cluster store, decode and serve a resource (KEP-2339).

Source: Kubernetes' ``registry/apiserverinternal``, ``apis/apiserverinternal`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since, joined
from kubechronicle.api.builtin.common.checks import dns_subdomain, qualified_name, repeated
from kubechronicle.api.builtin.common.kind import BuiltinKind, only_status
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, age_of, at, field_column, name_of
from kubechronicle.api.errors.field_errors import Cause, duplicate, invalid_value, required
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object, ReadOnlyObject

_LABEL: Final = (
    "a DNS-1035 label, which must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character"
)
_LABEL_PATTERN: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_TYPE: Final = "apiserverinternal.v1alpha1.StorageVersionStatus"
_EMPTY: Final = "must be non-empty"


def resource_name(name: str, prefix: bool) -> list[str]:
    """Return the problems of the name: GROUP.RESOURCE, "core" for the group without a name."""
    group, dot, resource = name.rpartition(".")
    if not dot:
        return ["name must be in the form of <group>.<resource>"]
    problems = [f"the group segment {text}" for text in names.dns_subdomain(group)]
    return problems + [f"the resource segment {text}" for text in names.dns_1035_label(resource)]


def _status(new: Object, _: Object) -> list[Cause]:
    status, causes = new.get("status") or {}, list[Cause]()
    servers = status.get("storageVersions") or []
    again = repeated([each.get("apiServerID", "") for each in servers])
    for index, server in enumerate(servers):
        path = f"status.storageVersions[{index}]"
        if again[index]:
            causes.append(duplicate(f"{path}.apiServerID", server.get("apiServerID", "")))
        causes += _server(server, path)
    return causes + _common(status, servers) + _conditions(status.get("conditions") or [])


def _server(server: Object, path: str) -> list[Cause]:
    encoding, decodable = server.get("encodingVersion", ""), server.get("decodableVersions")
    causes = dns_subdomain(server.get("apiServerID", ""), f"{path}.apiServerID")
    causes += _version(encoding, f"{path}.encodingVersion")
    for index, each in enumerate(decodable or ()):
        causes += _version(each, f"{path}.decodableVersions[{index}]")
    if encoding not in (decodable or ()):
        text = f"decodableVersions must include encodingVersion {encoding}"
        causes.append(invalid_value(f"{path}.decodableVersions", decodable, text))
    for index, each in enumerate(server.get("servedVersions") or ()):
        field = f"{path}.servedVersions[{index}]"
        causes += _version(each, field)
        if each not in (decodable or ()):
            listed = f"[{' '.join(decodable or ())}]"
            text = f"individual served version : {each} must be included in decodableVersions : {listed}"
            causes.append(invalid_value(field, each, text))
    return causes


def _version(text: str, field: str) -> list[Cause]:
    """Check an apiVersion: VERSION, or GROUP/VERSION."""
    *group, version = text.split("/")
    if len(group) > 1:
        label = names.regex_message(_LABEL, _LABEL_PATTERN, "my-name", "abc-123")
        more = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyVersion')"
        return [invalid_value(field, text, f"an apiVersion is {label} {more}")]
    problems: list[str] = []
    for part, value, check in (
        *(("group", each, names.dns_subdomain) for each in group),
        ("version", version, names.dns_1035_label),
    ):
        problems += [f"{part} part: {problem}" for problem in (check(value) if value else [_EMPTY])]
    return [invalid_value(field, text, ",".join(problems))] if problems else []


def _common(status: Object, servers: list[Object]) -> list[Cause]:
    """Check the version that all servers write: none if they differ."""
    versions = {each.get("encodingVersion", "") for each in servers}
    common, given = (versions.pop() if len(versions) == 1 else None), status.get("commonEncodingVersion")
    if common == given:
        return []
    if common is None:
        text = (
            "should be nil if servers do not agree on the same encoding version, or if there is no server reporting "
            "the supported versions yet"
        )
    else:
        text = f"the {'' if given is None else 'actual '}common encoding version is {common}"
    return [invalid_value("status.commonEncodingVersion", given, text)]


def _conditions(given: list[Object]) -> list[Cause]:
    causes, first = list[Cause](), dict[str, int]()
    for index, each in enumerate(given):
        kind, path = each.get("type", ""), f"status[{index}]"  # Kubernetes' path, without the name of the list
        if kind in first:
            text = f"the type of the condition is not unique, it also appears in conditions[{first[kind]}]"
            causes.append(invalid_value(f"{path}.type", kind, text))
        first[kind] = index
        causes += qualified_name(kind, f"{path}.type") + qualified_name(each.get("status", ""), f"{path}.status")
        causes += [required(f"{path}.{name}") for name in ("reason", "message") if not each.get(name)]
    return causes


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    servers = at(obj, "status", "storageVersions", default=())
    shown = [f"{each.get('apiServerID', '')}={each.get('encodingVersion', '')}" for each in servers]
    common = at(obj, "status", "commonEncodingVersion", default="<unset>")
    return [name_of(obj), common, joined(shown, 3), age_of(obj, since)]


KIND: Final = BuiltinKind(
    resource="storageversions.internal.apiserver.k8s.io",
    strategy=Strategy(
        check_name=resource_name,
        unconditional_update=False,
        update_checks=(),
        subresources=only_status(_status, checks=(Check.CHANGE,)),
    ),
    printer=Printer(
        (
            NAME,
            field_column("CommonEncodingVersion", f"{_TYPE}.commonEncodingVersion"),
            field_column("StorageVersions", f"{_TYPE}.storageVersions"),
            AGE,
        ),
        _cells,
    ),
)
