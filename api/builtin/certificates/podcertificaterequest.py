"""PodCertificateRequest: a kubelet's request for the certificate of a pod (KEP-4317).

Source: ``registry/certificates/podcertificaterequest`` and ``apis/certificates/validation``. The checks that need a
clock or the rights of the requester are in actors/admission/certificates.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from email.utils import parseaddr
from typing import Any, Final

from cryptography import x509

from kubechronicle.api.builtin.certificates.certificatesigningrequest import signer_name
from kubechronicle.api.builtin.common.cell_text import Since, is_true
from kubechronicle.api.builtin.common.checks import conditions, wrong
from kubechronicle.api.builtin.common.kind import BuiltinKind, only_status
from kubechronicle.api.builtin.common.printer import NAME, Column, Printer, at, field_column, name_of
from kubechronicle.api.errors.field_errors import (
    Cause,
    invalid_value,
    not_supported,
    required,
    too_long,
)
from kubechronicle.api.meta.metadata import IMMUTABLE, validate_annotations
from kubechronicle.api.schema.equality import same_json
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values import names
from kubechronicle.api.values.certificates import (
    CERTIFICATE,
    key_problem,
    parse_certificate,
    parse_key,
    parse_request,
    proves_possession,
    text_blocks,
)
from kubechronicle.api.values.objects import Object, ReadOnlyObject

ISSUED: Final = "Issued"
ENDS: Final = (ISSUED, "Denied", "Failed")
"""The conditions that end a request; the server's signers set at most one."""
LEAST_SECONDS: Final = 3600
MOST_SECONDS: Final = 91 * 24 * 3600
MOST_KUBERNETES_SECONDS: Final = 24 * 3600
"""The limits of maxExpirationSeconds; the last one is that of signers of kubernetes.io."""
MAX_REQUEST: Final = 10 * 1024
MAX_CHAIN: Final = 100 * 1024
MAX_UID: Final = 128
parse_time: Final = datetime.fromisoformat
MARGIN: Final = timedelta(minutes=10)
_CHAIN: Final = "status.certificateChain"
_SPEC: Final = "certificates.v1.PodCertificateRequestSpec"


def _spec(obj: Object) -> list[Cause]:
    spec = obj.get("spec") or {}
    signer = spec.get("signerName", "")
    causes = signer_name(signer, "spec.signerName")
    causes += user_annotations(spec.get("unverifiedUserAnnotations"), "spec.unverifiedUserAnnotations")
    for noun in ("pod", "serviceAccount", "node"):
        name, uid = spec.get(f"{noun}Name", ""), spec.get(f"{noun}UID", "")
        causes += wrong(f"spec.{noun}Name", name, names.dns_subdomain(name))
        if not uid:
            causes.append(invalid_value(f"spec.{noun}UID", uid, "must not be empty"))
        elif len(uid.encode()) > MAX_UID:
            causes.append(too_long(f"spec.{noun}UID", MAX_UID))
    seconds = spec.get("maxExpirationSeconds")
    if seconds is None:
        return [*causes, required("spec.maxExpirationSeconds", "must be set")]
    least, most = lifetimes(signer)
    if not least <= seconds <= most:
        text = f"must be in the range [{least}, {most}]"
        causes.append(invalid_value("spec.maxExpirationSeconds", seconds, text))
    return causes + _request(spec)


def lifetimes(signer: str) -> tuple[int, int]:
    """Return the least and the greatest maxExpirationSeconds for a signer."""
    domain = signer.partition("/")[0]
    kubernetes = domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
    return LEAST_SECONDS, MOST_KUBERNETES_SECONDS if kubernetes else MOST_SECONDS


def user_annotations(given: Mapping[str, str] | None, field: str) -> list[Cause]:
    """Check what a pod's owner tells the signer: keys with a domain, and their size."""
    causes: list[Cause] = []
    for key in map(str.lower, sorted(given or ())):
        if not key:
            causes.append(required(field))
            continue
        problems = names.qualified_name(key)
        if not problems and "/" not in key:
            problems = ['must be a domain-prefixed key (such as "acme.io/foo")']
        causes += wrong(field, key, problems)
    return causes + [each for each in validate_annotations(given or {}, field) if each.reason == "FieldValueTooLong"]


def _request(spec: Object) -> list[Cause]:
    path, encoded = "spec.stubPKCS10Request", spec.get("stubPKCS10Request") or ""
    old_form = [bool(spec.get(name)) for name in ("pkixPublicKey", "proofOfPossession")]
    if not encoded and all(old_form):
        return _key_with_proof(spec)
    if not encoded or any(old_form):
        text = "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set"
        return [Cause("FieldValueInvalid", f"Invalid value: {text}", "spec")]
    if len(encoded) * 3 // 4 > MAX_REQUEST:
        return [too_long(path, MAX_REQUEST)]
    request = parse_request(encoded)
    if request is None:
        return [_plain(path, "must be a valid PKCS#10 CSR")]
    value, problem = key_problem(request.public_key())
    if problem:
        return [invalid_value(path, value, problem) if value else _plain(path, problem)]
    return [] if request.is_signature_valid else [_plain(path, "invalid signature")]


def _key_with_proof(spec: Object) -> list[Cause]:
    """Check the key of v1beta1, and the proof: a signature of the pod's UID by the key."""
    path, encoded, proof = "spec.pkixPublicKey", spec["pkixPublicKey"], spec["proofOfPossession"]
    for name in ("pkixPublicKey", "proofOfPossession"):
        if len(spec[name]) * 3 // 4 > MAX_REQUEST:
            return [too_long(f"spec.{name}", MAX_REQUEST)]
    key = parse_key(encoded)
    if key is None:
        return [invalid_value(path, encoded, "must be a valid PKIX-serialized public key")]
    value, problem = key_problem(key)
    if problem:
        return [invalid_value(path, value or encoded, problem.replace("P256, P384, or P521", "P256 or P384"))]
    if proves_possession(key, spec.get("podUID", ""), proof):
        return []
    return [_plain("spec.proofOfPossession", "could not verify proof-of-possession signature")]


def _requested_key(spec: Object) -> object | None:
    """Return the key of a request, in either form."""
    request = parse_request(spec.get("stubPKCS10Request") or "")
    return parse_key(spec.get("pkixPublicKey") or "") if request is None else request.public_key()


def _plain(path: str, text: str) -> Cause:
    """Return a cause that does not show the value."""
    return Cause("FieldValueInvalid", f"Invalid value: {text}", path)


def _spec_stays(new: Object, old: Object) -> list[Cause]:
    spec = new.get("spec") or {}
    if same_json(spec, old.get("spec") or {}):
        return []
    shown = {
        "SignerName": spec.get("signerName", ""),
        "PodName": spec.get("podName", ""),
        "PodUID": spec.get("podUID", ""),
        "ServiceAccountName": spec.get("serviceAccountName", ""),
        "ServiceAccountUID": spec.get("serviceAccountUID", ""),
        "NodeName": spec.get("nodeName", ""),
        "NodeUID": spec.get("nodeUID", ""),
        "MaxExpirationSeconds": spec.get("maxExpirationSeconds"),
        "PKIXPublicKey": spec.get("pkixPublicKey"),
        "ProofOfPossession": spec.get("proofOfPossession"),
        "StubPKCS10Request": spec.get("stubPKCS10Request"),
        "UnverifiedUserAnnotations": spec.get("unverifiedUserAnnotations"),
    }
    return [invalid_value("spec", shown, IMMUTABLE)]


def _ended(status: Object) -> list[str]:
    return [kind for kind in ENDS if is_true(status.get("conditions"), kind)]


def request_status(new: Object, old: Object) -> list[Cause]:
    """Check a change of the status: it ends the request once, with a certificate or without."""
    status, held = new.get("status") or {}, old.get("status") or {}
    given = status.get("conditions") or []
    causes = _known_conditions(given) + conditions(given, "status.conditions")
    if causes:
        return causes
    if _ended(held):
        same = same_json(status, held)
        return [] if same else [_plain("status", "immutable after PodCertificateRequest is issued, denied, or failed")]
    ended = _ended(status)
    if ended and ended != [ISSUED]:
        if all(name == "conditions" or not value for name, value in status.items()):
            return []
        text = "non-condition status fields must be empty when denying or failing the PodCertificateRequest"
        return [_plain("status", text)]
    if ended:
        return _issued(new, status)
    if same_json(status, held):
        return []
    return [_plain("status", 'status is immutable unless transitioning to "Issued", "Denied", or "Failed"')]


def _known_conditions(given: list[Object]) -> list[Cause]:
    causes, known = list[Cause](), 0
    for index, condition in enumerate(given):
        path, kind, state = f"status.conditions.[{index}]", condition.get("type", ""), condition.get("status", "")
        if kind not in ENDS:
            causes.append(not_supported(f"{path}.type", kind, ENDS))
            continue
        known += 1
        if known > 1:
            text = 'There may be at most one condition with type "Issued", "Denied", or "Failed"'
            causes.append(invalid_value(f"{path}.type", kind, text))
        if state != "True":
            causes.append(not_supported(f"{path}.status", state, ("True",)))
    return causes


def _issued(obj: Object, status: Object) -> list[Cause]:
    chain = status.get("certificateChain", "")
    if len(chain.encode()) > MAX_CHAIN:
        return [too_long(_CHAIN, MAX_CHAIN)]
    blocks = text_blocks(chain)
    if not blocks:
        return [invalid_value(_CHAIN, chain, "issued certificate chain must contain at least one certificate")]
    if blocks[0].kind != CERTIFICATE:
        text = "issued certificate chain must consist entirely of CERTIFICATE PEM blocks"
        return [invalid_value(_CHAIN, chain, text)]
    leaf = parse_certificate(blocks[0].der)
    if leaf is None:
        return [invalid_value(_CHAIN, chain, "leaf certificate does not parse as valid X.509")]
    causes = _alternative_names(leaf)
    key = _requested_key(obj.get("spec") or {})
    if key is not None and key != leaf.public_key():
        text = "leaf certificate was not issued to the requested public key"
        return [*causes, invalid_value(_CHAIN, chain, text)]
    causes += _times(obj, status, leaf)
    if causes:
        return causes
    for block in blocks[1:]:
        if block.kind != CERTIFICATE:
            text = "issued certificate chain must consist entirely of CERTFICATE PEM blocks"
            return [invalid_value(_CHAIN, chain, text)]
        if parse_certificate(block.der) is None:
            return [invalid_value(_CHAIN, chain, "intermediate certificate does not parse as valid X.509")]
    return []


def _alternative_names(leaf: x509.Certificate) -> list[Cause]:
    try:
        found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    causes: list[Cause] = []
    for name in found.get_values_for_type(x509.DNSName):
        if not name:
            causes.append(invalid_value(_CHAIN, name, "leaf certificate should not contain empty DNSName"))
        if ".." in name:
            causes.append(invalid_value(_CHAIN, name, "leaf certificate's DNSName should not contain '..'"))
        if name.startswith(".") or name.endswith("."):
            text = "leaf certificate's DNSName should not start or end with '.'"
            causes.append(invalid_value(_CHAIN, name, text))
    for address in found.get_values_for_type(x509.RFC822Name):
        if "@" not in parseaddr(address)[1]:
            causes.append(invalid_value(_CHAIN, address, "leaf certificate should not contain invalid EmailAddress"))
    return causes


def _times(obj: Object, status: Object, leaf: x509.Certificate) -> list[Cause]:
    """Check the times of the status: those of the certificate, and a renewal between them."""
    texts = {
        "notBefore": "must be present and consistent with the issued certificate",
        "notAfter": "must be present and consistent with the issued certificate",
        "beginRefreshAt": "must be present and in the range [notbefore+10min, notafter-10min]",
    }
    if missing := [required(f"status.{name}", text) for name, text in texts.items() if not status.get(name)]:
        return missing
    begin, end, renewal = (parse_time(status[name]) for name in texts)
    encoded = "must be set to the {} time encoded in the leaf certificate"
    if begin != leaf.not_valid_before_utc:
        return [invalid_value("status.notBefore", status["notBefore"], encoded.format("NotBefore"))]
    if end != leaf.not_valid_after_utc:
        return [invalid_value("status.notAfter", status["notAfter"], encoded.format("NotAfter"))]
    lifetime = end - begin
    most = (obj.get("spec") or {}).get("maxExpirationSeconds") or 0
    shown = int(lifetime / timedelta(microseconds=1)) * 1000
    if lifetime < timedelta(hours=1):
        return [invalid_value(_CHAIN, shown, "leaf certificate lifetime must be >= 1 hour")]
    if lifetime > timedelta(seconds=most):
        text = f"leaf certificate lifetime must be <= spec.maxExpirationSeconds ({most})"
        return [invalid_value(_CHAIN, shown, text)]
    if renewal < begin + MARGIN:
        text = "must be at least 10 minutes after status.notBefore"
        return [invalid_value("status.beginRefreshAt", status["beginRefreshAt"], text)]
    if renewal > end - MARGIN:
        text = "must be at least 10 minutes before status.notAfter"
        return [invalid_value("status.beginRefreshAt", status["beginRefreshAt"], text)]
    return []


def late_problem(new: Object, old: Object, now: datetime) -> list[Cause]:
    """Check that a certificate that is issued now begins to be valid within five minutes of ``now``."""
    status = new.get("status") or {}
    if _ended(old.get("status") or {}) or _ended(status) != [ISSUED]:
        return []
    if abs(parse_time(status["notBefore"]) - now) < timedelta(minutes=5):
        return []
    text = "must be set to within 5 minutes of kube-apiserver's current time"
    return [invalid_value("status.notBefore", status["notBefore"], text)]


def _cells(obj: ReadOnlyObject, _: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    state = "Pending"
    for condition in at(obj, "status", "conditions", default=()):
        state = condition.get("type") if condition.get("type") in ENDS else state
    named = [spec.get(name, "") for name in ("podName", "serviceAccountName", "nodeName", "signerName")]
    annotations = spec.get("unverifiedUserAnnotations")
    shown = ",".join(f"{key}={value}" for key, value in sorted((annotations or {}).items())) or "<none>"
    return [name_of(obj), *named, state, shown]


KIND: Final = BuiltinKind(
    resource="podcertificaterequests.certificates.k8s.io",
    strategy=Strategy(
        unconditional_update=False,
        update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
        validate=_spec,
        validate_update=_spec_stays,
        subresources=only_status(request_status),
    ),
    printer=Printer(
        (
            NAME,
            field_column("PodName", f"{_SPEC}.podName"),
            field_column("ServiceAccountName", f"{_SPEC}.serviceAccountName"),
            field_column("NodeName", f"{_SPEC}.nodeName"),
            field_column("SignerName", f"{_SPEC}.signerName"),
            Column("State", text="Is the request Pending, Issued, Denied, or Failed?"),
            field_column("UnverifiedUserAnnotations", f"{_SPEC}.unverifiedUserAnnotations"),
        ),
        _cells,
    ),
)
