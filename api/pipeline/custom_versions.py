"""Custom objects in the versions of their definition: as stored, and as requests see them.

``convert_custom`` is the one function through which the conversion of a custom object goes. Around it stand the steps
of kube-apiserver's codec (apiextensions-apiserver ``pkg/apiserver/customresource_handler.go``):

    read        stored → cleaned and defaulted by the schema of its own version → converted → cleaned in the new one
    to_stored   of a request → converted to the stored version → cleaned and defaulted in that

So fields that a schema no longer has, or defaults that it gained, show in each read; a write stores them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from kubechronicle.api.custom import numbers
from kubechronicle.api.custom.schema.compiled import CompiledSchema
from kubechronicle.api.custom.schema.known_contents import Contents
from kubechronicle.api.custom.version import CustomVersion
from kubechronicle.api.errors import status
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.objects import Object

ConvertByWebhook = Callable[[CustomVersion, Object, str], Object]
"""(definition, object, API version) -> the object in this version. Raises StatusError, or an exception to retry on."""


def _without_webhooks(custom: CustomVersion, obj: Object, api_version: str) -> Object:
    raise status.internal_error(f"no webhook can convert {custom.plural}.{custom.group} to {api_version} here")


_by_webhook: Final[ContextVar[ConvertByWebhook]] = ContextVar("by_webhook", default=_without_webhooks)


@contextmanager
def converting_by(convert: ConvertByWebhook) -> Iterator[None]:
    """Let ``convert`` do the conversions of webhooks, in this task and its threads, until the end of the block."""
    token = _by_webhook.set(convert)
    try:
        yield
    finally:
        _by_webhook.reset(token)


def convert_custom(custom: CustomVersion, obj: Object, api_version: str) -> Object:
    """Return an object in another version of its definition; it shares parts with ``obj``, which is consumed.

    Strategy None changes the apiVersion alone. Strategy Webhook has the function of ``converting_by`` do it, which
    raises if the webhook's answer is not there yet. LookupError if the definition does not have the version.
    """
    if obj["apiVersion"] == api_version:
        return obj
    group, _, name = api_version.rpartition("/")
    if group != custom.group or name not in custom.versions:
        raise LookupError(f"request to convert CR to an invalid group/version: {api_version}")
    if custom.conversion.get("strategy") == "Webhook":
        return _by_webhook.get()(custom, obj, api_version)
    return {**obj, "apiVersion": api_version}


def read(rt: ResourceType, obj: Object) -> Object:
    """Return a stored object as requests in the type's version see it. ``obj`` is consumed."""
    obj = as_stored(rt, obj)
    if obj["apiVersion"] == rt.api_version:
        return obj
    return as_served(rt, convert_custom(rt.custom, obj, rt.api_version))


def as_stored(rt: ResourceType, obj: Object) -> Object:
    """Return a stored object, cleaned and defaulted by the present schema of its own version. ``obj`` is consumed."""
    own = rt.custom.versions.get(obj["apiVersion"].rpartition("/")[2])
    if own is not None:
        own.schema.settle(obj, drop_malformed=True)
    obj["metadata"].setdefault("generation", 1)
    return obj


def as_served(rt: ResourceType, obj: Object) -> Object:
    """Return a converted object, cleaned by the schema of the type's version. ``obj`` is consumed."""
    rt.custom.schema.clean(obj, drop_malformed=True)
    return obj


def to_stored(rt: ResourceType, obj: Object) -> Object:
    """Return an object of a request in the stored form. ``obj`` is consumed."""
    custom: CustomVersion = rt.custom
    obj = convert_custom(custom, obj, rt.storage_api_version)
    custom.storage.schema.settle(obj, drop_malformed=True)  # kube-apiserver sets the defaults in each read
    return numbers.as_written(obj)


def of_settled(rt: ResourceType, obj: Object, contents: Contents) -> Object:
    """Return an object in the stored form, of which only the metadata may lack that form. ``obj`` is consumed.

    ``contents``: of the object. Metadata in their form hold no floats, so only the contents are searched for them.
    """
    schema: CompiledSchema = rt.custom.storage.schema
    schema.coerce(obj, drop_malformed=True)
    if schema.is_known_to_conform(contents):
        return obj
    if contents.text is not None and not numbers.has_whole_floats(contents.text):
        return obj
    return numbers.as_written(obj)
