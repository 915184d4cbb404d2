"""Validation of roles and their bindings (rbac.authorization.k8s.io) and of certificate signing requests."""

from __future__ import annotations

import base64
import re
from typing import Any, Final

from kubechronicle.api import names
from kubechronicle.api.builtin.checks import dns_subdomain, label_selector, wrong
from kubechronicle.api.builtin.go_shapes import shape
from kubechronicle.api.field_errors import Cause, duplicate, forbidden, go_quote, invalid_value, not_supported, required

Object = dict[str, Any]

RBAC: Final = "rbac.authorization.k8s.io"


def _rules(obj: Object, *, namespaced: bool) -> list[Cause]:
    causes: list[Cause] = []
    for index, rule in enumerate(obj.get("rules") or ()):
        field = f"rules[{index}]"
        if not rule.get("verbs"):
            causes.append(required(f"{field}.verbs", "verbs must contain at least one value"))
        urls = rule.get("nonResourceURLs")
        if urls:
            path = f"{field}.nonResourceURLs"
            if namespaced:
                detail = "namespaced rules cannot apply to non-resource URLs"
                causes.append(invalid_value(path, urls, detail))
            if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                detail = "rules cannot apply to both regular resources and non-resource URLs"
                causes.append(invalid_value(path, urls, detail))
            continue
        if not rule.get("apiGroups"):
            causes.append(required(f"{field}.apiGroups", "resource rules must supply at least one api group"))
        if not rule.get("resources"):
            causes.append(required(f"{field}.resources", "resource rules must supply at least one resource"))
    return causes


def role(obj: Object) -> list[Cause]:
    """The rules of a role in a namespace."""
    return _rules(obj, namespaced=True)


def cluster_role(obj: Object) -> list[Cause]:
    """The rules of a role everywhere, and from which others it is put together."""
    causes = _rules(obj, namespaced=False)
    aggregation = obj.get("aggregationRule")
    if aggregation is None:
        return causes
    selectors = aggregation.get("clusterRoleSelectors") or ()
    if not selectors:
        detail = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        causes.append(required("aggregationRule.clusterRoleSelectors", detail))
    for index, selector in enumerate(selectors):
        causes += label_selector(selector, f"aggregationRule.clusterRoleSelectors[{index}]")
    return causes


def _binding(obj: Object, kinds: tuple[str, ...], *, namespaced: bool) -> list[Cause]:
    causes: list[Cause] = []
    reference = obj.get("roleRef") or {}
    if reference.get("apiGroup", "") != RBAC:
        causes.append(not_supported("roleRef.apiGroup", reference.get("apiGroup", ""), (RBAC,)))
    if reference.get("kind", "") not in kinds:
        causes.append(not_supported("roleRef.kind", reference.get("kind", ""), kinds))
    name = reference.get("name", "")
    causes += wrong("roleRef.name", name, names.path_segment(name)) if name else [required("roleRef.name")]
    for index, subject in enumerate(obj.get("subjects") or ()):
        causes += _subject(subject, f"subjects[{index}]", namespaced=namespaced)
    return causes


def _subject(subject: Object, field: str, *, namespaced: bool) -> list[Cause]:
    kind, name, group = subject.get("kind", ""), subject.get("name", ""), subject.get("apiGroup", "")
    causes = [] if name else [required(f"{field}.name")]
    if kind == "ServiceAccount":
        if name:
            causes += dns_subdomain(name, f"{field}.name")
        if group:
            causes.append(not_supported(f"{field}.apiGroup", group, ("",)))
        if not namespaced and not subject.get("namespace"):
            causes.append(required(f"{field}.namespace"))
    elif kind in ("User", "Group"):
        if group != RBAC:
            causes.append(not_supported(f"{field}.apiGroup", group, (RBAC,)))
    else:
        causes.append(not_supported(f"{field}.kind", kind, ("ServiceAccount", "User", "Group")))
    return causes


def role_binding(obj: Object) -> list[Cause]:
    """A role of either kind, given to subjects in a namespace."""
    return _binding(obj, ("Role", "ClusterRole"), namespaced=True)


def cluster_role_binding(obj: Object) -> list[Cause]:
    """A role given to subjects everywhere."""
    return _binding(obj, ("ClusterRole",), namespaced=False)


def role_ref_update(new: Object, old: Object) -> list[Cause]:
    """A binding is bound to its role for good."""
    if new.get("roleRef") == old.get("roleRef"):
        return []
    return [invalid_value("roleRef", shape(new.get("roleRef") or {}, "RoleRef"), "cannot change roleRef")]


# -- certificates -----------------------------------------------------------------------------------------------------

USAGES: Final = tuple(
    sorted(
        (
            "any",
            "cert sign",
            "client auth",
            "code signing",
            "content commitment",
            "crl sign",
            "data encipherment",
            "decipher only",
            "digital signature",
            "email protection",
            "encipher only",
            "ipsec end system",
            "ipsec tunnel",
            "ipsec user",
            "key agreement",
            "key encipherment",
            "microsoft sgc",
            "netscape sgc",
            "ocsp signing",
            "s/mime",
            "server auth",
            "signing",
            "timestamping",
        )
    )
)
LEGACY_SIGNER: Final = "kubernetes.io/legacy-unknown"
MIN_SECONDS: Final = 600
MAX_SIGNER: Final = 253 + 1 + 253 + 1 + 63
_SEGMENT: Final = "example.com/signer-name"
_CONDITIONS: Final = ("Approved", "Denied", "Failed")
_PEM: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----\s(.*?)-----END \1-----", re.DOTALL)


def signer_name(name: str, field: str) -> list[Cause]:
    """A signer has a domain and a path below it."""
    if not name:
        return [required(field)]
    domain, slash, path = name.partition("/")
    if not slash:
        detail = f"must be a fully qualified domain and path of the form '{_SEGMENT}'"
        return [invalid_value(field, name, detail)]
    causes = [
        invalid_value(field, domain, f"validating label {go_quote(part)}: {text}")
        for part in domain.split(".")
        for text in names.dns_label(part)
    ]
    if "." not in domain:
        detail = "should be a domain with at least two segments separated by dots"
        causes.append(invalid_value(field, domain, detail))
    causes += [invalid_value(field, path, f"validating label {go_quote(path)}: {text}") for text in _path(path)]
    return causes


def _path(path: str) -> list[str]:
    return [text for part in path.split(".") for text in names.dns_subdomain(part.lower())]


def _request_problem(encoded: str) -> str:
    try:
        text = base64.b64decode(encoded).decode("ascii", "replace")
    except ValueError:
        text = ""
    block = _PEM.search(text)
    if block is None or block[1] not in ("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"):
        return "PEM block type must be CERTIFICATE REQUEST"
    try:
        der = base64.b64decode("".join(block[2].split()), validate=True)
    except ValueError:
        return "PEM block type must be CERTIFICATE REQUEST"
    return "" if der[:1] == b"\x30" else "asn1: structure error: tags don't match"


def signing_request(obj: Object) -> list[Cause]:
    """What is to be signed, by whom, and for what."""
    spec = obj["spec"]
    causes: list[Cause] = []
    encoded = spec.get("request", "")
    problem = _request_problem(encoded)
    if problem:
        causes.append(invalid_value("spec.request", encoded or None, problem))
    usages = spec.get("usages") or []
    if not usages:
        causes.append(required("spec.usages"))
    for index, usage in enumerate(usages):
        if usage not in USAGES:
            causes.append(not_supported(f"spec.usages[{index}]", usage, USAGES))
        elif usage in usages[:index]:
            causes.append(duplicate(f"spec.usages[{index}]", usage))
    signer = spec.get("signerName", "")
    if signer == LEGACY_SIGNER:
        detail = "the legacy signerName is not allowed via this API version"
        causes.append(invalid_value("spec.signerName", signer, detail))
    else:
        causes += signer_name(signer, "spec.signerName")
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < MIN_SECONDS:
        detail = f"may not specify a duration less than {MIN_SECONDS} seconds (10 minutes)"
        causes.append(invalid_value("spec.expirationSeconds", seconds, detail))
    return causes


def _types(obj: Object, *kinds: str) -> list[Object]:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return [each for each in conditions if each.get("type") in kinds]


def _conditions(new: Object, old: Object, *, approving: bool) -> list[Cause]:
    """Approval and denial are said once, through one endpoint, and not taken back."""
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, condition in enumerate((new.get("status") or {}).get("conditions") or ()):
        field, kind = f"status.conditions[{index}]", condition.get("type", "")
        if not kind:
            causes.append(required(f"{field}.type"))
        if not condition.get("status"):
            causes.append(required(f"{field}.status"))
        elif kind in _CONDITIONS and condition["status"] != "True":
            causes.append(not_supported(f"{field}.status", condition["status"], ("True",)))
        elif condition["status"] not in ("True", "False", "Unknown"):
            causes.append(not_supported(f"{field}.status", condition["status"], ("False", "True", "Unknown")))
        if kind in seen:
            causes.append(duplicate(f"{field}.type", kind))
        seen.add(kind)
    for kind in ("Approved", "Denied"):
        after, before = _types(new, kind), _types(old, kind)
        if before and not after:
            causes.append(forbidden("status.conditions", f'updates may not remove a condition of type "{kind}"'))
        elif after and not before and not approving:
            causes.append(forbidden("status.conditions", f'updates may not add a condition of type "{kind}"'))
        elif before != after and before and after:
            causes.append(forbidden("status.conditions", f'updates may not modify a condition of type "{kind}"'))
    if _types(new, "Approved") and _types(new, "Denied") and not (_types(old, "Approved") and _types(old, "Denied")):
        detail = "Approved and Denied conditions are mutually exclusive"
        causes.append(invalid_value("status.conditions", _types(new, "Approved", "Denied")[-1]["type"], detail))
    return causes


def request_status(new: Object, old: Object) -> list[Cause]:
    """A certificate is issued once."""
    causes = _conditions(new, old, approving=False)
    after, before = ((each.get("status") or {}).get("certificate") or "" for each in (new, old))
    if after and after != before and not _certificates(after):
        detail = "must contain at least one CERTIFICATE PEM block"
        causes.append(invalid_value("status.certificate", "<certificate data>", detail))
    if before and after != before:
        causes.append(forbidden("status.certificate", "updates may not modify existing certificate content"))
    return causes


def _certificates(encoded: str) -> bool:
    try:
        text = base64.b64decode(encoded).decode("ascii", "replace")
    except ValueError:
        return False
    return any(block[1] == "CERTIFICATE" for block in _PEM.finditer(text))


def request_approval(new: Object, old: Object) -> list[Cause]:
    """Approval says yes or no, and issues nothing."""
    causes = _conditions(new, old, approving=True)
    after, before = ((each.get("status") or {}).get("certificate") or "" for each in (new, old))
    if after != before:
        causes.append(forbidden("status.certificate", "updates may not set certificate content"))
    return causes
