"""CertificateSigningRequest: a request for a certificate, its approval and its answer.

Source: Kubernetes' ``registry/certificates``, ``apis/certificates`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since, human_duration
from kubechronicle.api.builtin.common.checks import unique
from kubechronicle.api.builtin.common.go_shapes import difference, record
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, at, field_column, name_of
from kubechronicle.api.errors.field_errors import (
    Cause,
    duplicate,
    forbidden,
    go_quote,
    invalid_value,
    not_supported,
    required,
    too_long,
)
from kubechronicle.api.kinds.reading import enum
from kubechronicle.api.strategy.strategy import Check, Requester, Strategy, keep, status_update
from kubechronicle.api.values import names
from kubechronicle.api.values.certificates import chain_problem, request_problem
from kubechronicle.api.values.objects import Object, ReadOnlyObject

# -- preparation ------------------------------------------------------------------------------------------------------


def keep_request_spec(new: Object, old: Object) -> None:
    """Keep the old spec: a signing request is immutable."""
    keep("spec", new, old)


def record_requester(new: Object, requester: Requester) -> None:
    """Overwrite the user fields of the spec with those of the authenticated requester."""
    spec = new["spec"]
    for name in ("username", "uid", "groups", "extra"):
        spec.pop(name, None)
    noted = {
        "username": requester.user,
        "uid": requester.uid,
        "groups": list(requester.groups),
        "extra": {key: list(values) for key, values in requester.extra.items()},
    }
    spec.update({name: value for name, value in noted.items() if value})


def stamp_conditions(new: Object, old: Object, now: str) -> None:
    """Set missing update and transition times of conditions; keep the transition time while the status stays the
    same."""
    held: dict[tuple[str | None, str | None], str] = {}
    for condition in conditions_of(old):
        if condition.get("lastTransitionTime"):
            held.setdefault((condition.get("type"), condition.get("status")), condition["lastTransitionTime"])
    for condition in conditions_of(new):
        if not condition.get("lastUpdateTime"):
            condition["lastUpdateTime"] = now
        if not condition.get("lastTransitionTime"):
            condition["lastTransitionTime"] = held.get((condition.get("type"), condition.get("status")), now)


def prepare_status(new: Object, old: Object) -> None:
    """Keep approvals and denials; if their number differs, validation rejects the change."""
    after = conditions_of(new)
    for kind in (APPROVED, DENIED):
        held = [condition for condition in conditions_of(old) if condition.get("type") == kind]
        places = [index for index, condition in enumerate(after) if condition.get("type") == kind]
        if len(held) == len(places):
            for index, condition in zip(places, held, strict=True):
                after[index] = condition


def prepare_approval(new: Object, old: Object) -> None:
    """Take over the conditions alone."""
    after = conditions_of(new)
    new["status"] = {name: value for name, value in (old.get("status") or {}).items() if name != "conditions"}
    if after:
        new["status"]["conditions"] = after


_CHECKS: Final = (Check.METADATA, Check.CHANGE, Check.METADATA_CHANGE)


# -- validation -------------------------------------------------------------------------------------------------------

LEGACY_SIGNER: Final = "kubernetes.io/legacy-unknown"
MIN_SECONDS: Final = 600
MAX_DOMAIN: Final = 253
MAX_SIGNER: Final = MAX_DOMAIN + 1 + 253 + 63 + 1
APPROVED: Final = "Approved"
DENIED: Final = "Denied"
FAILED: Final = "Failed"
_STATUSES: Final = ("False", "True", "Unknown")
_ONLY_TRUE: Final = frozenset((APPROVED, DENIED, FAILED))


def signer_name(name: str, field: str) -> list[Cause]:
    """Check that a signer name is a domain of two or more parts, a slash and a path."""
    if not name:
        return [required(field)]
    parts = name.split("/")
    if len(parts) != 2:
        detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        return [invalid_value(field, name, detail)]
    domain, path = parts
    causes = [too_long(field, MAX_DOMAIN)] if len(domain.encode()) > MAX_DOMAIN else []
    labels = domain.split(".")
    causes += _first_problem(labels, domain, field, names.dns_label)
    if len(labels) < 2:
        detail = "should be a domain with at least two segments separated by dots"
        causes.append(invalid_value(field, domain, detail))
    causes += _first_problem(path.split("."), path, field, names.dns_subdomain)
    if len(name.encode()) > MAX_SIGNER:
        causes.append(too_long(field, MAX_SIGNER))
    return causes


def _first_problem(labels: list[str], whole: str, field: str, check: Any) -> list[Cause]:
    for label in labels:
        problems = check(label)
        if problems:
            return [invalid_value(field, whole, f"validating label {go_quote(label)}: {text}") for text in problems]
    return []


def validate_signing_request(obj: Object) -> list[Cause]:
    """Check the request, usages, signer and conditions of a new CertificateSigningRequest."""
    return _request(obj, None)


def _request(obj: Object, old: Object | None) -> list[Cause]:
    spec, held = obj["spec"], (old or {}).get("spec") or {}
    encoded = spec.get("request")
    problem = request_problem(encoded or "")
    causes = [invalid_value("spec.request", encoded, problem)] if problem else []
    usages, before = spec.get("usages") or [], held.get("usages") or []
    if not usages:
        causes.append(required("spec.usages"))
    if set(before) <= set(enum("certificates.v1.KeyUsage")):
        causes += [
            not_supported(f"spec.usages[{index}]", usage, enum("certificates.v1.KeyUsage"))
            for index, usage in enumerate(usages)
            if usage not in enum("certificates.v1.KeyUsage")
        ]
    if len(set(before)) == len(before):
        causes += unique(usages, "spec.usages")
    signer = spec.get("signerName", "")
    if signer == LEGACY_SIGNER and held.get("signerName") != LEGACY_SIGNER:
        detail = "the legacy signerName is not allowed via this API version"
        causes.append(invalid_value("spec.signerName", signer, detail))
    else:
        causes += signer_name(signer, "spec.signerName")
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < MIN_SECONDS:
        detail = f"may not specify a duration less than {MIN_SECONDS} seconds (10 minutes)"
        causes.append(invalid_value("spec.expirationSeconds", seconds, detail))
    return causes + _conditions(obj, old) + _chain(obj, old)


def conditions_of(obj: Object | None) -> list[Object]:
    """Return the conditions in a request's status."""
    return ((obj or {}).get("status") or {}).get("conditions") or []


def _of_type(obj: Object | None, kind: str) -> list[Object]:
    return [condition for condition in conditions_of(obj) if condition.get("type", "") == kind]


def _conditions(obj: Object, old: Object | None) -> list[Cause]:
    field, kinds = "status.conditions", [condition.get("type", "") for condition in conditions_of(old)]
    were_unique, was_empty = len(set(kinds)) == len(kinds), "" in kinds
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, condition in enumerate(conditions_of(obj)):
        path, kind, status = f"{field}[{index}]", condition.get("type", ""), condition.get("status", "")
        if not kind and not was_empty:
            causes.append(required(f"{path}.type"))
        choices = ("True",) if kind in _ONLY_TRUE else _STATUSES
        if not status:
            causes.append(required(f"{path}.status"))
        elif status not in choices:
            causes.append(not_supported(f"{path}.status", status, choices))
        if kind in seen and were_unique:
            causes.append(duplicate(f"{path}.type", kind))
        seen.add(kind)
    return causes


def _certificate(obj: Object | None) -> str:
    return ((obj or {}).get("status") or {}).get("certificate") or ""


def _chain(obj: Object, old: Object | None) -> list[Cause]:
    after, before = _certificate(obj), _certificate(old)
    if old is not None and (after == before or chain_problem(before)):
        return []
    problem = chain_problem(after)
    return [invalid_value("status.certificate", "<certificate data>", problem)] if problem else []


def _update(new: Object, old: Object, *, approves: bool, issues: bool) -> list[Cause]:
    """Reject removed conditions; allow new approvals and a new certificate only through their subresources."""
    causes, field = _request(new, old), "status.conditions"
    for kind in (APPROVED, DENIED, FAILED):
        if len(_of_type(new, kind)) < len(_of_type(old, kind)):
            causes.append(forbidden(field, f'updates may not remove a condition of type "{kind}"'))
    for kind in () if approves else (APPROVED, DENIED):
        after, before = _of_type(new, kind), _of_type(old, kind)
        if len(after) > len(before):
            causes.append(forbidden(field, f'updates may not add a condition of type "{kind}"'))
        elif len(after) == len(before) and after != before:
            shown = [[record(one, "CertificateSigningRequestCondition") for one in each] for each in (before, after)]
            detail = f'updates may not modify a condition of type "{kind}"\n{difference(*shown)}'
            causes.append(forbidden(field, detail))
    if _certificate(new) != _certificate(old):
        if not issues:
            causes.append(forbidden("status.certificate", "updates may not set certificate content"))
        elif _certificate(old):
            detail = "updates may not modify existing certificate content"
            causes.append(forbidden("status.certificate", detail))
    return causes


def validate_request_update(new: Object, old: Object) -> list[Cause]:
    """Check an update of the object itself: its spec and status stay."""
    return _update(new, old, approves=False, issues=False)


def validate_request_status(new: Object, old: Object) -> list[Cause]:
    """Check a status update: it may issue the certificate once, but neither approve nor deny."""
    return _update(new, old, approves=False, issues=True)


def validate_request_approval(new: Object, old: Object) -> list[Cause]:
    """Check an approval update: it may approve or deny, but not issue a certificate."""
    return _update(new, old, approves=True, issues=False)


# -- table columns ----------------------------------------------------------------------------------------------------


def _signing_status(obj: ReadOnlyObject) -> str:
    given = {found.get("type") for found in at(obj, "status", "conditions", default=())}
    word = "Denied" if "Denied" in given else "Approved" if "Approved" in given else "Pending"
    failed = ",Failed" if "Failed" in given else ""
    return word + failed + (",Issued" if at(obj, "status", "certificate") else "")


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    seconds = spec.get("expirationSeconds")
    return [
        name_of(obj),
        age_of(obj, since),
        spec.get("signerName") or "<none>",
        spec.get("username") or "",
        "<none>" if seconds is None else human_duration(seconds),
        _signing_status(obj),
    ]


_SIGNER_TEXT: Final = (
    "Requested signer for the request. It is a qualified name in the form: `scope-hostname.io/name`. If empty, it will "
    "be defaulted:\n"
    " 1. If it's a kubelet client certificate, it is assigned\n"
    '    "kubernetes.io/kube-apiserver-client-kubelet".\n'
    " 2. If it's a kubelet serving certificate, it is assigned\n"
    '    "kubernetes.io/kubelet-serving".\n'
    ' 3. Otherwise, it is assigned "kubernetes.io/legacy-unknown".\n'
    "Distribution of trust for signers happens out of band. You can select on this field using `spec.signerName`."
)
_CSR: Final = "certificates.v1.CertificateSigningRequestSpec"


# -- the kind ---------------------------------------------------------------------------------------------------------

KIND: Final = BuiltinKind(
    resource="certificatesigningrequests.certificates.k8s.io",
    strategy=Strategy(
        update_checks=_CHECKS,
        names="any",
        reset=(("spec",), ("status",)),
        requested=record_requester,
        prepare_update=keep_request_spec,
        validate=validate_signing_request,
        validate_update=validate_request_update,
        subresources=MappingProxyType(
            {
                "status": status_update(
                    "spec",
                    prepare=prepare_status,
                    reset=(("spec",), ("status", "conditions")),
                    validate_update=validate_request_status,
                    timed=stamp_conditions,
                    checks=_CHECKS,
                ),
                "approval": status_update(
                    "spec",
                    prepare=prepare_approval,
                    reset=(("spec",), ("status", "certificate")),
                    validate_update=validate_request_approval,
                    timed=stamp_conditions,
                    checks=_CHECKS,
                ),
            }
        ),
    ),
    printer=Printer(
        (
            NAME,
            AGE,
            Column("SignerName", text=_SIGNER_TEXT),
            Column("Requestor", text="Base64-encoded PKCS#10 CSR data"),
            field_column("RequestedDuration", f"{_CSR}.expirationSeconds"),
            Column("Condition", text="Conditions applied to the request, such as approval or denial."),
        ),
        _cells,
    ),
)
