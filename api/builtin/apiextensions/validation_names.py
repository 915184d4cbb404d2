"""The names of a definition: its group, plural, kinds, short names and versions, and the approval of protected groups.

Source: apiextensions-apiserver ``pkg/apis/apiextensions/validation`` and ``pkg/apihelpers``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kubechronicle.api.builtin.apiextensions.where import Where
from kubechronicle.api.errors.field_errors import Cause, go_json, go_quote, invalid_value, required
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object, ReadOnlyObject

APPROVAL: Final = "api-approved.kubernetes.io"
MAX_DEPRECATION_WARNING: Final = 256

APPROVED: Final = "approved"
BYPASSED: Final = "bypassed"
MISSING: Final = "missing"
MALFORMED: Final = "malformed"

_PROTECTED: Final = ("k8s.io", "kubernetes.io", "history.kubechronicle.dev")
"""Kubernetes' own domains, and the group in which this server answers questions about history."""
_RULES: Final = "see https://github.com/kubernetes/enhancements/pull/1111"


def check_name(obj: Object) -> names.NameCheck:
    """Return the check of a definition's own name."""
    spec = obj.get("spec") or {}
    wanted = f"{(spec.get('names') or {}).get('plural', '')}.{spec.get('group', '')}"

    def check(name: str, prefix: bool) -> list[str]:
        problems = names.subdomain_name(name, prefix)
        return problems if name == wanted else [*problems, 'must be spec.names.plural+"."+spec.group']

    return check


def group(name: str, where: Where) -> Iterator[Cause]:
    """Check the API group."""
    if not name:
        yield required(where)
    elif problems := names.dns_subdomain(name):
        yield invalid_value(where, name, ",".join(problems))
    elif "." not in name:
        yield invalid_value(where, name, "should be a domain with at least one dot")


def required_names(given: Object, where: Where) -> Iterator[Cause]:
    """Check that a spec has the names that a status may lack."""
    for name in ("plural", "singular", "kind", "listKind"):
        if not given.get(name):
            yield required(where.child(name))


def resource_names(given: Object, where: Where) -> Iterator[Cause]:
    """Check the syntax of the names of a spec, or of the accepted names of a status."""
    kind, list_kind = given.get("kind", ""), given.get("listKind", "")
    for name in ("plural", "singular"):
        if given.get(name):
            yield from _label(given[name], where.child(name))
    for name, value in (("kind", kind), ("listKind", list_kind)):
        problems = names.dns_1035_label(value.lower())
        if value and problems:
            detail = f"may have mixed case, but should otherwise match: {','.join(problems)}"
            yield invalid_value(where.child(name), value, detail)
    for index, value in enumerate(given.get("shortNames") or ()):
        yield from _label(value, where.child("shortNames").index(index))
    if kind and kind == list_kind:
        yield invalid_value(where.child("listKind"), list_kind, "kind and listKind may not be the same")
    for index, value in enumerate(given.get("categories") or ()):
        yield from _label(value, where.child("categories").index(index))


def version_name(name: str, where: Where) -> Iterator[Cause]:
    """Check the name of a version."""
    yield from _label(name, where)


def _label(value: str, where: Where) -> Iterator[Cause]:
    if problems := names.dns_1035_label(value):
        yield invalid_value(where, value, ",".join(problems))


def deprecation_warning(version: Object, where: Where) -> Iterator[Cause]:
    """Check the text that clients of a deprecated version get."""
    text = version.get("deprecationWarning")
    if text is None:
        return
    if not version.get("deprecated"):
        yield _invalid_text(where, text, "can only be set for deprecated versions")
        return
    if len(text.encode(errors="replace")) > MAX_DEPRECATION_WARNING:
        yield _invalid_text(where, text, f"must be <= {MAX_DEPRECATION_WARNING} characters long")
    if not text:
        yield _invalid_text(where, text, "must not be an empty string")
    position = 0
    for character in text:
        if not character.isprintable():
            detail = f"must only contain printable UTF-8 characters; non-printable character found at index {position}"
            yield _invalid_text(where, text, detail)
            return
        position += len(character.encode(errors="replace"))


def _invalid_text(where: Where, text: str, detail: str) -> Cause:
    """Return a cause that shows a text as JSON, as kube-apiserver shows pointers to texts."""
    return Cause("FieldValueInvalid", f"Invalid value: {go_json(text)}", str(where), detail=detail)


def is_protected(group_name: str) -> bool:
    """Return whether an API group is reserved, so that its definitions need an approval."""
    return any(group_name == domain or group_name.endswith(f".{domain}") for domain in _PROTECTED)


def approval_state(annotations: Mapping[str, str] | None) -> tuple[str, str]:
    """Return (the state of the approval, the reason for it)."""
    text = (annotations or {}).get(APPROVAL, "")
    must = f'protected groups must have approval annotation "{APPROVAL}"'
    if not text:
        return MISSING, f"{must}, {_RULES}"
    if text.startswith("unapproved"):
        return BYPASSED, f"not approved: {go_quote(text)}"
    if _is_url(text):
        return APPROVED, f"approved in {text}"
    return MALFORMED, f'{must} with either a URL or a reason starting with "unapproved", {_RULES}'


def _is_url(text: str) -> bool:
    from kubechronicle.api.cel.library.urls import UrlError, parse

    try:
        url = parse(text)
    except UrlError:
        return False
    return bool(url.scheme and url.host)


def approval(new: ReadOnlyObject, old: ReadOnlyObject | None) -> Iterator[Cause]:
    """Check the approval of a definition in a protected group, unless an update leaves its state as it is."""
    if not is_protected(new["spec"].get("group", "")):
        return
    annotations = new["metadata"].get("annotations")
    state, reason = approval_state(annotations)
    if old is not None and approval_state(old["metadata"].get("annotations"))[0] == state:
        return
    where = Where.of("metadata").child("annotations").key(APPROVAL)
    if state is MISSING:
        yield required(where, reason)
    elif state is MALFORMED:
        yield invalid_value(where, annotations[APPROVAL], reason)
