"""The conversion between the versions of a definition: None, or a webhook.

Source: ``validateCustomResourceConversion`` in apiextensions-apiserver ``pkg/apis/apiextensions/validation``. It names
the fields of its internal form: ``webhookClientConfig`` for ``webhook.clientConfig``.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from typing import Final

from kubechronicle.api.builtin.admissionregistration.webhooks import client_config
from kubechronicle.api.builtin.apiextensions.where import Where
from kubechronicle.api.builtin.common.checks import one_of, repeated, wrong
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value, required
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object

NONE: Final = "None"
WEBHOOK: Final = "Webhook"
REVIEW_VERSIONS: Final = ("v1", "v1beta1")


def knows_review(versions: Sequence[str]) -> bool:
    """Return whether a webhook understands a version of ConversionReview that this server sends."""
    return any(version in REVIEW_VERSIONS for version in versions)


def conversion(given: Object, where: Where, *, known_review: bool, any_bundle: bool) -> Iterator[Cause]:
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
