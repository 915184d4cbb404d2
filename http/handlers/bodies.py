"""What every handler of a write does with a request: the target it names, for whom, and the body's value."""

from __future__ import annotations

from typing import Any

from kubechronicle.actors.admission.chain import NOBODY
from kubechronicle.actors.writing.writes import Caller, Target
from kubechronicle.api.codecs import json, negotiate, protobuf, yaml
from kubechronicle.api.codecs.errors import DecodeError
from kubechronicle.api.errors import status
from kubechronicle.api.meta import options
from kubechronicle.api.pipeline import bodies
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.http.context import Context, who
from kubechronicle.http.messages import Request
from kubechronicle.http.request_info import RequestInfo

# The real server's bound on a request's body (MaxRequestBodyBytes of k8s.io/apiserver's generic config).
MAX_BODY = 3 * 1024 * 1024


def namespace_of(info: RequestInfo, rt: ResourceType) -> str:
    """Where the object lives: nowhere for cluster-scoped ones, a namespace's own name included."""
    return info.namespace if rt.namespaced else ""


def target_of(
    request: Request,
    context: Context,
    rt: ResourceType,
    asked: Any,
    *,
    name: str = "",
    subresource: str = "",
    caller: Caller | None = None,
) -> Target:
    """``asked``: the verb's options. ``name`` and ``subresource``: where they are not the URL's. ``caller``: who asks,
    where that is known by now."""
    info = context.info
    manager = options.manager_of(getattr(asked, "field_manager", ""), request.headers.get("user-agent"))
    return Target(
        rt=rt,
        namespace=namespace_of(info, rt),
        name=name or info.name,
        subresource=subresource or info.subresource,
        manager=manager,
        dry_run=asked.dry_run,
        field_validation=getattr(asked, "field_validation", ""),
        who=NOBODY if caller is None else caller.who,
    )


def caller_of(request: Request, context: Context, field_manager: str) -> Caller:
    """The request's deadline ends it, whatever it waits for (filters.limit_time)."""
    who_asks = who(request, context, field_manager=field_manager)
    return Caller(who=who_asks, deadline=context.deadline, limited=True)


async def decoded_body(request: Request, rt: ResourceType, validation: str) -> tuple[Any, list[str]]:
    """The body's value by its Content-Type, and its duplicate fields where asked for. StatusError 400, 413, 415."""
    media_type = negotiate.body_type(request.headers.get("content-type"))
    body = await request.body(MAX_BODY)
    try:
        return _decode(body, media_type, rt, strict=validation != "Ignore")
    except DecodeError as error:
        raise bodies.unrecognized(rt, error.message, body) from None


def _decode(body: bytes, media_type: str, rt: ResourceType | None, *, strict: bool) -> tuple[Any, list[str]]:
    if media_type == negotiate.PROTOBUF:
        if rt is None:
            return protobuf.decode(body), []
        return protobuf.decode(body, default_api_version=rt.api_version, default_kind=rt.kind), []
    if media_type == negotiate.YAML:
        return yaml.decode(body, strict=strict)
    return json.decode(body, strict=strict)


async def delete_options(request: Request, context: Context) -> options.DeleteOptions:
    """DELETE's options: the body's if there is one, else the query's."""
    body = await request.body(MAX_BODY)
    value: Any = None
    if body:
        media_type = negotiate.body_type(request.headers.get("content-type"))
        try:
            decoded, _ = _decode(body, media_type, None, strict=False)
        except DecodeError as error:
            raise status.bad_request(error.message) from None
        value = bodies.decode_delete_options(decoded)
    return options.parse_delete_options(context.query.as_dict(), value)
