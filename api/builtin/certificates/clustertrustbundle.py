"""ClusterTrustBundle: certificates of authorities, for all pods. | Source: ``registry/certificates/clustertrustbundle``
and ``apis/certificates/validation``."""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.certificates.certificatesigningrequest import signer_name
from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import immutable
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import NAME, Printer, field_column, name_of
from kubechronicle.api.errors.field_errors import Cause, invalid_value, too_long
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values import names
from kubechronicle.api.values.certificates import anchor_problems
from kubechronicle.api.values.objects import Object, ReadOnlyObject

MAX_SIZE: Final = 1 << 20
"""Bytes of a bundle."""
_OMITTED: Final = "<value omitted>"


def _named(metadata: Object, signer: str) -> list[Cause]:
    """Check the name, which begins with the signer's name if there is one."""
    prefix, name = metadata.get("generateName", ""), metadata.get("name", "")
    causes = [invalid_value("metadata.generateName", prefix, text) for text in bundle_name(prefix, signer, True)]
    problems = bundle_name(name, signer, False) if name else ()  # the common rules require a name
    return causes + [invalid_value("metadata.name", name, text) for text in problems]


def bundle_name(name: str, signer: str, prefix: bool) -> list[str]:
    """Return the problems of the name of a signer's bundle, or of one without a signer."""
    if prefix and not name:
        return []
    if not signer:
        if ":" in name:
            return ['ClusterTrustBundle without signer name must not have ":" in its name']
        return names.subdomain_name(name, prefix)
    beginning = f"{signer.replace('/', ':')}:"
    if not name.startswith(beginning):
        return [f"ClusterTrustBundle for signerName {signer} must be named with prefix {beginning}"]
    return names.subdomain_name(name.removeprefix(beginning), prefix)


def _bundle(text: str) -> list[Cause]:
    if len(text.encode()) > MAX_SIZE:
        return [too_long("spec.trustBundle", MAX_SIZE)]
    return [invalid_value("spec.trustBundle", _OMITTED, problem) for problem in anchor_problems(text)]


def _validate(obj: Object, old: Object | None = None) -> list[Cause]:
    """Check name, signer and certificates. An update may keep certificates that no longer parse."""
    spec = obj.get("spec") or {}
    signer, text = spec.get("signerName", ""), spec.get("trustBundle", "")
    causes = _named(obj["metadata"], signer)
    if signer:
        causes += signer_name(signer, "spec.signerName")
    if old is None or (old.get("spec") or {}).get("trustBundle", "") != text:
        causes += _bundle(text)
    return causes


def _signer_stays(new: Object, old: Object) -> list[Cause]:
    signers = ((each.get("spec") or {}).get("signerName", "") for each in (new, old))
    return immutable("spec.signerName", *signers)


def _cells(obj: ReadOnlyObject, _: Since) -> list[Any]:
    return [name_of(obj), (obj.get("spec") or {}).get("signerName") or "<none>"]


KIND: Final = BuiltinKind(
    resource="clustertrustbundles.certificates.k8s.io",
    strategy=Strategy(
        names="any",
        status=False,
        unconditional_update=False,
        update_checks=(Check.OBJECT, Check.METADATA_CHANGE, Check.CHANGE),
        reset=(),
        validate=_validate,
        validate_changed=_validate,
        validate_update=_signer_stays,
    ),
    printer=Printer((NAME, field_column("SignerName", "certificates.v1.ClusterTrustBundleSpec.signerName")), _cells),
)
