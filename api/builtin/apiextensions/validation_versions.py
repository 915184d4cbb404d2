"""The versions of a definition: printer columns, subresources, selectable fields, and the conversion between versions.

Source: apiextensions-apiserver ``pkg/apis/apiextensions/validation``. ``validateCustomResourceConversion`` names the
fields of its internal form: ``webhookClientConfig`` for ``webhook.clientConfig``.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from typing import Final

from kubechronicle.api.builtin.admissionregistration.webhooks import client_config
from kubechronicle.api.builtin.apiextensions.where import Where
from kubechronicle.api.builtin.common.checks import one_of, repeated, wrong
from kubechronicle.api.custom.rule import FieldPathError, field_path
from kubechronicle.api.errors.field_errors import Cause, duplicate, forbidden, invalid_value, required, too_many
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object

# -- conversion -------------------------------------------------------------------------------------------------------

NONE: Final = "None"
WEBHOOK: Final = "Webhook"
REVIEW_VERSIONS: Final = ("v1", "v1beta1")


def knows_review(versions: Sequence[str]) -> bool:
    """Return whether a webhook understands a version of ConversionReview that this server sends."""
    return any(version in REVIEW_VERSIONS for version in versions)


def conversion_causes(given: Object, where: Where, *, known_review: bool, any_bundle: bool) -> Iterator[Cause]:
    """Check a conversion.

    ``known_review``: the webhook must know a version of ConversionReview. ``any_bundle``: the caBundle may be invalid.
    """
    yield from one_of(given.get("strategy", ""), (NONE, WEBHOOK), str(where.child("strategy")))
    webhook = given.get("webhook") or {}
    config, versions = webhook.get("clientConfig"), webhook.get("conversionReviewVersions") or []
    config_at, versions_at = where.child("webhookClientConfig"), where.child("conversionReviewVersions")
    if given.get("strategy") != WEBHOOK:
        detail = "should not be set when strategy is not set to Webhook"
        if config is not None:
            yield forbidden(config_at, detail)
        if versions:
            yield forbidden(versions_at, detail)
        return
    if config is None:
        yield required(config_at, "required when strategy is set to Webhook")
    else:
        yield from client_config(config, str(config_at))
        bundle = config.get("caBundle")
        if bundle and not any_bundle and (problem := bundle_problem(bundle)):
            yield invalid_value(config_at.child("caBundle"), bundle, problem)
    yield from _review_versions(versions, versions_at, known_review=known_review)


def _review_versions(versions: Sequence[str], where: Where, *, known_review: bool) -> Iterator[Cause]:
    if not versions:
        yield required(where)
        return
    for index, (version, again) in enumerate(zip(versions, repeated(versions), strict=True)):
        at = where.index(index)
        if again:
            yield invalid_value(at, version, "duplicate version")
        else:
            yield from wrong(str(at), version, names.dns_1035_label(version))
    if known_review and not knows_review(versions):
        yield invalid_value(where, versions, f"must include at least one of {', '.join(REVIEW_VERSIONS)}")


def bundle_problem(bundle: str) -> str:
    """Return the problem of a caBundle in base64, empty if it holds a certificate."""
    from cryptography import x509

    from kubechronicle.api.values.certificates import CERTIFICATE, pem_blocks

    broken = ""
    blocks = pem_blocks(bundle)
    for block in blocks:
        if block.kind != CERTIFICATE or block.headers:
            continue
        try:
            x509.load_der_x509_certificate(block.der)
        except ValueError:
            broken = broken or "failed to parse certificate: x509: malformed certificate"
        else:
            return ""
    if broken or not blocks:
        return f"unable to load root certificates: {broken or 'unable to parse bytes as PEM block'}"
    if _ends_with_text(bundle):
        return "unable to load root certificates: unable to parse bytes as PEM block"
    return "unable to load root certificates: no valid certificate authority data seen"


def _ends_with_text(bundle: str) -> bool:
    try:
        return not base64.b64decode(bundle).rstrip(b"\n").endswith(b"-----")
    except binascii.Error:
        return True


# -- serving ----------------------------------------------------------------------------------------------------------

COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
COLUMN_FORMATS: Final = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
SELECTABLE_TYPES: Final = ("string", "boolean", "integer")
MAX_SELECTABLE: Final = 8


def printer_columns(given: Sequence[Object], where: Where) -> Iterator[Cause]:
    """Check additional printer columns."""
    for index, column in enumerate(given):
        yield from _column(column, where.index(index))


def _column(column: Object, where: Where) -> Iterator[Cause]:
    if not column.get("name"):
        yield required(where.child("name"))
    kind, detail = column.get("type", ""), f"must be one of {','.join(COLUMN_TYPES)}"
    if not kind:
        yield required(where.child("type"), detail)
    elif kind not in COLUMN_TYPES:
        yield invalid_value(where.child("type"), kind, detail)
    shape = column.get("format", "")
    if shape and shape not in COLUMN_FORMATS:
        yield invalid_value(where.child("format"), shape, f"must be one of {','.join(COLUMN_FORMATS)}")
    path = column.get("jsonPath", "")
    if not path:
        yield required(where.child("JSONPath"))
    elif path[0] != ".":
        yield _not_simple(path, where.child("JSONPath"))


def _not_simple(path: str, where: Where) -> Cause:
    return invalid_value(where, path, "must be a simple json path starting with .")


def subresources(given: Object | None, where: Where) -> Iterator[Cause]:
    """Check the paths of a scale subresource."""
    scale = None if given is None else given.get("scale")
    if scale is None:
        return
    for name, below in (("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")):
        at, path = where.child(f"scale.{name}"), scale.get(name, "")
        if not path:
            yield required(at)
        elif path[0] != ".":
            yield _not_simple(path, at)
        elif not path.startswith(f"{below}."):
            yield invalid_value(at, path, f"should be a json path under {below}")
    at, path = where.child("scale.labelSelectorPath"), scale.get("labelSelectorPath") or ""
    if path and path[0] != ".":
        yield _not_simple(path, at)
    elif path and not path.startswith((".spec.", ".status.")):
        yield invalid_value(at, path, "should be a json path under either .spec or .status")


def selectable_fields(given: Sequence[Object], schema: Object, where: Where, *, any_number: bool) -> Iterator[Cause]:
    """Check that fields exist in a schema, have a simple type, and differ. ``any_number``: more than 8 are allowed."""
    seen: set[str] = set()
    for index, each in enumerate(given):
        at, path = where.index(index).child("jsonPath"), each.get("jsonPath", "")
        if not path:
            yield required(at)
            continue
        try:
            name, found = field_path(path, schema, brackets=False)
        except FieldPathError as error:
            yield invalid_value(at, path, f"is an invalid path: {error}")
            continue
        if name.partition(".")[0].partition("[")[0] == "metadata":
            yield invalid_value(at, path, "must not point to fields in metadata")
        if found.get("type") not in SELECTABLE_TYPES:
            detail = (
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats "
                "are allowed."
            )
            yield invalid_value(at, path, detail)
        if name in seen:
            yield duplicate(at, path)
        seen.add(name)
    if len(seen) > MAX_SELECTABLE and not any_number:
        yield too_many(where, len(seen), MAX_SELECTABLE)
