"""The verbs that read: get, list and watch."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from kubechronicle.actors.reading.reads import Selection, parse_continue
from kubechronicle.api.custom.conversion_reviews import WebhookConversionFailed
from kubechronicle.api.errors import status
from kubechronicle.api.history.cells import ERASED
from kubechronicle.api.history.positions import parse_position
from kubechronicle.api.history.reads import RESOURCES
from kubechronicle.api.meta import metadata
from kubechronicle.api.meta.list_options import INCONSISTENT, ListOptions, parse_list_options
from kubechronicle.api.meta.options import parse_get_options, parse_resource_version
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.selectors.field_selectors import (
    FieldSelector,
    FieldTerm,
    LabelSelector,
    check_field_syntax,
    parse_field_selector,
    parse_label_selector,
)
from kubechronicle.api.selectors.shard_selectors import ShardSelector
from kubechronicle.http.context import Context
from kubechronicle.http.handlers.backend import Backend
from kubechronicle.http.handlers.responses import bytes_response, list_response, one_body, one_body_at_once
from kubechronicle.http.handlers.revisions import (
    VERDICTS,
    check_list,
    check_policies_listed,
    warn_if_nothing,
    without_noise,
)
from kubechronicle.http.handlers.summaries import SUMMARY, summarize
from kubechronicle.http.handlers.watch import watch
from kubechronicle.http.handlers.write_request import corrupted
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.representation.answers import object_form

PARSED: Final = 16
"""Bytes of a body that are as much work as a character of a CEL expression."""
UNCACHED: Final = frozenset({"events"})
"""Storage resources that kube-apiserver's watch cache leaves out (pkg/kubeapiserver: DefaultWatchCacheSizes)."""


async def get(backend: Backend, request: Request, context: Context, rt: ResourceType) -> Response:
    info = context.info
    encoder = backend.encoders.choose(request, context, rt)
    options = parse_get_options(context.query.as_dict())
    if options.resource_version:
        metadata.match_name_syntax(info.name)
    revision = requested_revision(rt, options.resource_version, verb="get")
    try:
        entry = await backend.reads.get(rt, rt.namespace_in(info.namespace), info.name, revision=revision)
    except WebhookConversionFailed as error:
        raise corrupted(error, backend, context, rt) from None
    if entry is None:
        metadata.match_name_syntax(info.name)
        # Kubernetes names kinds that it does not store in the singular.
        raise status.not_found(rt if rt.stored else replace(rt, plural=rt.singular), info.name)
    body = one_body_at_once(context, encoder, entry)
    return bytes_response(200, encoder.form, await one_body(context, encoder, entry) if body is None else body)


async def list_(backend: Backend, request: Request, context: Context, rt: ResourceType) -> Response:
    if rt.of_log and SUMMARY in context.query and rt.plural not in RESOURCES:
        return await summarize(backend, context, rt, (await list_parameters(backend, context, rt))[1])
    if rt.of_log and VERDICTS in context.query:
        await check_policies_listed(backend, context)
    encoder = backend.encoders.choose(request, context, rt)
    options, selection = await list_parameters(backend, context, rt)
    if rt.of_log:
        selection = without_noise(request, context, rt, selection)
    if options.continue_ and options.resource_version not in ("", "0"):
        parse_continue(rt, selection, options.continue_)
        raise status.bad_request("specifying resource version is not allowed when using continue")
    revision = requested_revision(rt, options.resource_version, verb="list")
    exact = reads_exactly(options, revision, paged=options.limit > 0)
    if options.continue_ and not rt.of_log:
        read_at, _ = parse_continue(rt, selection, options.continue_)
        if read_at != INCONSISTENT:
            await check_list(backend, context, rt, selection.namespace, read_at)
    elif exact and revision and not rt.of_log:
        await check_list(backend, context, rt, selection.namespace, revision)
    listing = await backend.reads.list(
        rt, selection, limit=list_limit(options, rt), continue_token=options.continue_, revision=revision, exact=exact
    )
    if rt.of_log and not listing.entries and not options.continue_ and not listing.continue_token:
        await warn_if_nothing(backend, request, context, rt, selection)
    if listing.erased:
        context.warnings.append(f"{listing.erased} {rt.plural} {ERASED}")
    if selection.shard is not None:
        listing = replace(listing, shard=selection.shard)
    return await list_response(backend.compressing, request, encoder, listing)


async def begin_watch(backend: Backend, request: Request, context: Context, rt: ResourceType) -> Response:
    if not request.is_websocket:
        object_form(request, context, protobuf=bool(rt.message))  # the form of lists is rejected before the options
    options, selection = await list_parameters(backend, context, rt)
    if rt.of_log:
        selection = without_noise(request, context, rt, selection)
    revision = requested_revision(rt, options.resource_version, verb="watch")
    return await watch(backend, request, context, rt, options, selection, revision=revision)


async def list_parameters(backend: Backend, context: Context, rt: ResourceType) -> tuple[ListOptions, Selection]:
    """Return the options of a list, a watch or a deletecollection, and the objects that it is about. StatusError 400
    for selectors that do not parse, then 422 for the options, then 400 for fields that the kind does not have."""
    labels: LabelSelector | None = None

    def check_selectors(options: ListOptions) -> None:
        nonlocal labels
        if options.label_selector:
            labels = parse_label_selector(options.label_selector)
        if options.field_selector:
            check_field_syntax(options.field_selector)

    options = parse_list_options(context.query.as_dict(), check_selectors, watch_list=backend.watch_list)
    selection = _selection(context.info, rt, options, labels)
    if backend.sharded and (text := context.query.get("shardSelector")):
        selection = replace(selection, shard=await context.turn.run_once(len(text) * PARSED, partial(_shard, text)))
    return options, selection


def _shard(text: str) -> ShardSelector:
    """Return the selector of a share. StatusError 500 without a reason for a wrong one, as kube-apiserver answers."""
    from kubechronicle.api.cel import shards  # few requests need the parser

    try:
        return shards.parse(text)
    except ValueError as error:
        raise status.unknown(f"invalid shard selector: {error}") from None


def _selection(info: RequestInfo, rt: ResourceType, options: ListOptions, labels: LabelSelector | None) -> Selection:
    fields = parse_field_selector(options.field_selector, rt) if options.field_selector else None
    if info.name and info.deprecated_watch:
        fields = _of_name(fields, info.name)
    return Selection(
        namespace=rt.namespace_in(info.namespace),
        labels=None if labels is None or labels.empty else labels,
        fields=None if fields is None or fields.empty else fields,
    )


def _of_name(fields: FieldSelector | None, name: str) -> FieldSelector:
    """Return the field selector of a watch whose path names one object. StatusError 400 if it selects another one."""
    if fields is None or fields.empty:
        return FieldSelector([FieldTerm("metadata.name", True, name)])
    if fields.required("metadata.name") != name:
        raise status.bad_request("fieldSelector metadata.name doesn't match requested name")
    return fields


def requested_revision(rt: ResourceType, text: str, *, verb: str) -> int | None:
    """Return the resourceVersion that a read asks for; None if it asks for none, or the kind has none to offer.

    ``verb``: "get", "list" or "watch". A text that is no number is rejected as by the part of kube-apiserver that would
    read it: 400 for lists, and for a get of a kind that its watch cache leaves out; 500 without a reason otherwise.
    """
    if not text or not (rt.stored or rt.of_log):
        return None
    joined = parse_position(text) if rt.of_log else None
    if joined is not None:
        return joined
    try:
        return parse_resource_version(text)
    except ValueError as error:
        if verb == "list" or rt.of_log or (verb == "get" and rt.resource in UNCACHED):
            raise status.bad_request(f"invalid resource version: {error}") from None
        raise status.unknown(str(error)) from None


def list_limit(options: ListOptions, rt: ResourceType) -> int:
    """Return the limit of a list. kube-apiserver ignores it if the resourceVersion is "0": its cache answers whole."""
    return 0 if options.resource_version == "0" and not rt.of_log else options.limit


def reads_exactly(options: ListOptions, revision: int | None, *, paged: bool) -> bool:
    """Tell if a list is one of exactly its revision: by its match, or without a match if it is read in pages."""
    match = options.resource_version_match
    return match == "Exact" or (not match and paged and bool(revision))
