"""Validation of volumes made of files: keys of ConfigMaps and Secrets, the downward API, projections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.checks import local_path, missing
from kubechronicle.api.builtin.core.pod.validation_environment import field_reference, resource_reference
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value, required
from kubechronicle.api.values.objects import Object

FILE_MODE: Final = "must be a number between 0 and 0777 (octal), both inclusive"


def file_mode(source: Mapping[str, Any], field: str, member: str = "defaultMode") -> list[Cause]:
    """Check that file permissions are nine bits."""
    mode = source.get(member)
    return [] if mode is None or 0 <= mode <= 0o777 else [invalid_value(f"{field}.{member}", mode, FILE_MODE)]


def file_items(source: Object, field: str) -> list[Cause]:
    """Check files made of keys, with their permissions."""
    causes = file_mode(source, field)
    for index, item in enumerate(source.get("items") or ()):
        causes += _key_to_path(item, f"{field}.items[{index}]")
    return causes


def _key_to_path(item: Object, field: str) -> list[Cause]:
    causes = missing(item, field, "key", "path") + local_path(item.get("path", ""), f"{field}.path")
    return causes + file_mode(item, field, "mode")


FILE_FIELDS: Final = (
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
)


def downward_file(item: Object, field: str) -> list[Cause]:
    """Check a file made of a field of the pod or of a container's resources."""
    causes = missing(item, field, "path") + local_path(item.get("path", ""), f"{field}.path")
    reference, resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if reference is not None:
        causes += field_reference(reference, FILE_FIELDS, f"{field}.fieldRef")
        if resource is not None:
            detail = "fieldRef and resourceFieldRef can not be specified simultaneously"
            causes.append(invalid_value(field, "resource", detail))
    elif resource is not None:
        causes += resource_reference(resource, f"{field}.resourceFieldRef", volume=True)
    else:
        causes.append(required(field, "one of fieldRef and resourceFieldRef is required"))
    return causes + file_mode(item, field, "mode")


def downward_api(source: Object, field: str) -> list[Cause]:
    """Check files of the downward API."""
    causes = file_mode(source, field)
    for item in source.get("items") or ():
        causes += downward_file(item, field)
    return causes


def _token(source: Object, field: str, above: str) -> list[Cause]:
    causes: list[Cause] = []
    seconds, path = source.get("expirationSeconds", 0), f"{field}.expirationSeconds"
    if seconds < 600:
        causes.append(invalid_value(path, seconds, "may not specify a duration less than 10 minutes"))
    if seconds > 1 << 32:
        causes.append(invalid_value(path, seconds, "may not specify a duration larger than 2^32 seconds"))
    if not source.get("path"):
        return [*causes, required(f"{above}.path")]
    return causes + local_path(source["path"], f"{above}.path")


_PROJECTIONS: Final = ("secret", "configMap", "downwardAPI", "serviceAccountToken")


def projected(source: Object, field: str) -> list[Cause]:
    """Check files of several sources, and that their paths differ."""
    causes = file_mode(source, field)
    taken: set[str] = set()
    for index, projection in enumerate(source.get("sources") or ()):
        path = f"{field}.sources[{index}]"
        given = [name for name in _PROJECTIONS if projection.get(name) is not None]
        for name in given:
            causes += _projection(name, projection[name], f"{path}.{name}", field, taken)
        if len(given) > 1:
            causes.append(forbidden(path, "may not specify more than 1 volume type per source"))
    return causes


def _projection(name: str, part: Object, path: str, field: str, taken: set[str]) -> list[Cause]:
    if name == "serviceAccountToken":
        return _token(part, path, field)
    causes = missing(part, path, "name") if name != "downwardAPI" else []
    for position, item in enumerate(part.get("items") or ()):
        if name == "downwardAPI":
            causes += downward_file(item, path)
            causes += _conflicts(item.get("path", ""), None, field, taken)
        else:
            causes += _key_to_path(item, f"{path}.items[{position}]")
            causes += _conflicts(item.get("path", ""), part.get("name", ""), field, taken)
    return causes


def _conflicts(path: str, owner: str | None, field: str, taken: set[str]) -> list[Cause]:
    if not path:
        return []
    if path in taken:
        return [invalid_value(field, path if owner is None else owner, "conflicting duplicate paths")]
    taken.add(path)
    return []
