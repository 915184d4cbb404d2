"""Paths and operations of the served resources, in an internal form that v2.py and v3.py write out.

Everything comes from the Registry. Operation ids, descriptions, tags and actions are kube-apiserver's, because
generated clients name their methods after them. Parameters of all operations of a path belong to the path, as there.
Source: apiserver pkg/endpoints/installer.go and openapi.go, kube-openapi pkg/builder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kubechronicle.api.builtin.kinds import strategy_of
from kubechronicle.api.kinds import reading
from kubechronicle.api.openapi import parameters
from kubechronicle.api.openapi.names import article, capital, group_words, tag
from kubechronicle.api.openapi.parameters import Parameter
from kubechronicle.api.registry.registry import Registry, ResourceType, Subresource
from kubechronicle.api.registry.registry import definition_of as definition_of_kind
from kubechronicle.api.schema.types import META

MEDIA_TYPES: Final = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
CUSTOM_TYPES: Final = MEDIA_TYPES[:2]
"""Media types of custom resources, which have no protobuf form."""
STREAM_TYPES: Final = ("application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch")
PATCH_TYPES: Final = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
CBOR, CBOR_SEQUENCE, CBOR_PATCH = "application/cbor", "application/cbor-seq", "application/apply-patch+cbor"
"""The types that a server with the feature gate CBORServingAndStorage adds to those with a protobuf form."""
ANYTHING: Final = ("*/*",)

STATUS: Final = META + "Status"
TEXT: Final = "string"
"""The answer of an operation that returns a plain string instead of a definition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathOperation:
    """One operation of a path.

    ``answers``: status code -> the returned definition (TEXT for text).
    ``body``: the definition of the body, "" for none; ``consumes``: its media types.
    ``kind``: (group, version, kind), None for pages that are no resources.
    """

    method: str
    id: str
    description: str
    tag: str
    answers: Mapping[str, str]
    action: str = ""
    kind: tuple[str, str, str] | None = None
    parameters: tuple[Parameter, ...] = ()
    consumes: tuple[str, ...] = ANYTHING
    produces: tuple[str, ...] = MEDIA_TYPES
    body: str = ""
    body_required: bool = True


@dataclass(frozen=True, slots=True)
class DocumentPath:
    """A path. ``parameters`` are those of all its operations, which do not list them again."""

    path: str
    parameters: tuple[Parameter, ...]
    operations: tuple[PathOperation, ...]


def with_cbor(path: DocumentPath) -> DocumentPath:
    """Return a path of a server that also reads and writes CBOR."""
    return DocumentPath(path.path, path.parameters, tuple(map(_with_cbor, path.operations)))


def _with_cbor(operation: PathOperation) -> PathOperation:
    consumes, produces = operation.consumes, operation.produces
    if consumes == PATCH_TYPES:
        consumes = (*PATCH_TYPES, CBOR_PATCH)
    elif MEDIA_TYPES[2] in consumes:
        consumes = (*consumes, CBOR)
    if MEDIA_TYPES[2] in produces:
        streams = tuple(each for each in produces if each in STREAM_TYPES)
        plain = tuple(each for each in produces if each not in STREAM_TYPES)
        produces = (*plain, CBOR, *streams, CBOR_SEQUENCE) if streams else (*plain, CBOR)
    return replace(operation, consumes=consumes, produces=produces)


def group_version_path(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def definition_of(rt: ResourceType) -> str:
    """Return the definition of a resource's kind. A custom resource's begins with its group in reverse order."""
    if rt.definition:
        return rt.definition
    return _of_custom(rt, rt.kind)


def list_definition_of(rt: ResourceType) -> str:
    if rt.definition:
        return f"{rt.definition.rpartition('.')[0]}.{rt.list_kind}"
    return _of_custom(rt, rt.list_kind)


def _of_custom(rt: ResourceType, kind: str) -> str:
    """Return a name in a custom resource's group; another one if a published type has it, as kube-openapi merges."""
    name = f"{'.'.join(reversed(rt.group.split('.')))}.{rt.version}.{kind}"
    return f"{name}_v2" if reading.release().has_definition(name) else name


# verb -> (HTTP method, x-kubernetes-action, operation id's first word, status codes that return the object)
_VERBS: Final[Mapping[str, tuple[str, str, str, tuple[str, ...]]]] = {
    "list": ("get", "list", "list", ("200",)),
    "watchlist": ("get", "watchlist", "watch", ("200",)),
    "watch": ("get", "watch", "watch", ("200",)),
    "create": ("post", "post", "create", ("200", "201", "202")),
    "deletecollection": ("delete", "deletecollection", "delete", ("200",)),
    "get": ("get", "get", "read", ("200",)),
    "update": ("put", "put", "replace", ("200", "201")),
    "patch": ("patch", "patch", "patch", ("200", "201")),
    "delete": ("delete", "delete", "delete", ("200", "202")),
}

_DEPRECATED: Final = "deprecated: use the 'watch' parameter with a list operation instead"
_DESCRIPTIONS: Final[Mapping[str, str]] = {
    "list": "list {or_watch}objects of kind {kind}",
    "watchlist": f"watch individual changes to a list of {{kind}}. {_DEPRECATED}.",
    "watch": (
        f"watch changes to an object of kind {{kind}}. {_DEPRECATED}, filtered to a single item with the "
        "'fieldSelector' parameter."
    ),
    "create": "create {sub_of}{article}{kind}",
    "deletecollection": "delete collection of {kind}",
    "get": "read {sub_of_the}specified {kind}",
    "update": "replace {sub_of_the}specified {kind}",
    "patch": "partially update {sub_of_the}specified {kind}",
    "delete": "delete{article}{kind}",
}


def _description(verb: str, rt: ResourceType, subresource: str) -> str:
    text = _DESCRIPTIONS[verb].format(
        kind=rt.kind,
        article=article(rt.kind),
        or_watch="or watch " if "watch" in rt.verbs and rt.custom is None else "",
        sub_of=f"{subresource} of" if subresource else "",
        sub_of_the=f"{subresource} of the " if subresource else "the ",
    )
    return text.replace("create  ", "create ")


# -- a group version's paths ------------------------------------------------------------------------------------------


def paths_of(registry: Registry, group: str, version: str) -> Iterator[DocumentPath]:
    """Yield all paths below /api/VERSION or /apis/GROUP/VERSION; none if the registry does not serve it."""
    served = registry.resources(group, version)
    if served and not any(rt.custom for rt in served):
        yield _page(
            f"/{group_version_path(group, version)}/",
            f"get{group_words(group, version)}APIResources",
            "get available resources",
            META + "APIResourceList",
            tag(group, version),
        )
    for rt in served:
        yield from _resource_paths(rt)


def _resource_paths(rt: ResourceType) -> Iterator[DocumentPath]:
    base = f"/{group_version_path(rt.group, rt.version)}"
    within = "/namespaces/{namespace}" if rt.namespaced else ""
    where = (parameters.NAMESPACE,) if rt.namespaced else ()
    scope = "Namespaced" if rt.namespaced else ""
    one = (*where, parameters.name_of(rt.kind))
    watched, everywhere = "watch" in rt.verbs, rt.namespaced and "list" in rt.verbs

    def path(url: str, verbs: Iterable[str], names: tuple[Parameter, ...], noun: str) -> Iterator[DocumentPath]:
        made = [_operation(rt, verb, noun) for verb in verbs if verb in rt.verbs or (verb == "watchlist" and watched)]
        if made:
            yield _path(url, made, names)

    yield from path(f"{base}{within}/{rt.plural}", ("list", "create", "deletecollection"), where, scope + rt.kind)
    yield from path(f"{base}{within}/{rt.plural}/{{name}}", ("get", "update", "patch", "delete"), one, scope + rt.kind)
    if everywhere:
        yield from path(f"{base}/{rt.plural}", ("list",), (), f"{rt.kind}ForAllNamespaces")
    for subresource in rt.subresources.values():
        yield from _subresource_paths(rt, subresource, f"{base}{within}/{rt.plural}/{{name}}", where, scope)
    if not watched or rt.custom is not None:  # kube-apiserver never had the old watch paths for custom resources
        return
    old = f"{base}/watch"
    yield from path(f"{old}{within}/{rt.plural}", ("watchlist",), where, f"{scope}{rt.kind}List")
    yield from path(f"{old}{within}/{rt.plural}/{{name}}", ("watch",), one, scope + rt.kind)
    if everywhere:
        yield from path(f"{old}/{rt.plural}", ("watchlist",), (), f"{rt.kind}ListForAllNamespaces")


def _operation(rt: ResourceType, verb: str, noun: str, subresource: Subresource | None = None) -> PathOperation:
    method, action, prefix, codes = _VERBS[verb]
    definition, kind = definition_of(rt), (rt.group, rt.version, rt.kind)
    if subresource is not None and subresource.kind != rt.kind:
        definition = definition_of_kind(subresource.group, subresource.version, subresource.kind)
        if rt.custom is None:  # kube-apiserver names the custom resource itself here
            kind = (subresource.group, subresource.version, subresource.kind)
    if verb == "deletecollection":
        prefix, noun = "delete", f"Collection{noun}"
    body = {"create": definition, "update": definition, "patch": META + "Patch"}.get(verb, "")
    if verb == "delete" or (verb == "deletecollection" and rt.custom is None):
        body = META + "DeleteOptions"
    if verb == "patch" and rt.custom is not None:
        codes = codes[:1]
    return PathOperation(
        method=method,
        id=f"{prefix}{group_words(rt.group, rt.version)}{noun}",
        description=_description(verb, rt, subresource.name if subresource is not None else ""),
        tag=tag(rt.group, rt.version),
        answers=dict.fromkeys(codes, _answer(rt, verb, definition)),
        action=action,
        kind=kind,
        parameters=(parameters.PRETTY, *parameters.of_verb(verb, custom=rt.custom is not None)),
        consumes=_consumed(rt, verb),
        produces=_produced(rt, verb),
        body=body,
        body_required=verb not in ("delete", "deletecollection"),
    )


def _answer(rt: ResourceType, verb: str, definition: str) -> str:
    """Return the definition a verb answers. Deleting a namespace returns it, but all published documents say Status."""
    if verb == "list":
        return list_definition_of(rt)
    if verb in ("watch", "watchlist"):
        return META + "WatchEvent"
    if verb == "deletecollection" or (verb == "delete" and rt.resource == "namespaces"):
        return STATUS
    if verb == "delete":
        return definition if strategy_of(rt.resource).answers_deleted(rt.api_version) else STATUS
    return definition


def _consumed(rt: ResourceType, verb: str) -> tuple[str, ...]:
    """Return the media types of bodies. Custom resources have no strategic merge patch."""
    if rt.custom is None:
        return PATCH_TYPES if verb == "patch" else ANYTHING
    return tuple(name for name in PATCH_TYPES if "strategic" not in name) if verb == "patch" else CUSTOM_TYPES


def _produced(rt: ResourceType, verb: str) -> tuple[str, ...]:
    if rt.custom is not None:
        return CUSTOM_TYPES
    return (*MEDIA_TYPES, *STREAM_TYPES) if verb in ("list", "watch", "watchlist") else MEDIA_TYPES


def _subresource_paths(
    rt: ResourceType, subresource: Subresource, one: str, where: tuple[Parameter, ...], scope: str
) -> Iterator[DocumentPath]:
    names = (*where, parameters.name_of(subresource.kind))
    noun = f"{scope}{rt.kind}{capital(subresource.name)}"
    url = f"{one}/{subresource.name}"
    connected = parameters.CONNECT.get(subresource.kind)
    if connected is not None:
        yield _path(url, _connections(rt, subresource, noun, connected), names)
        if subresource.name == "proxy":
            further = _connections(rt, subresource, f"{noun}WithPath", connected)
            yield _path(f"{url}/{{path}}", further, (*names, parameters.PATH))
        return
    if subresource.name == "log":
        yield _path(url, [_log(rt, subresource, noun)], names)
        return
    made = [
        _operation(rt, verb, noun, subresource)
        for verb in ("create", "get", "update", "patch")
        if verb in subresource.verbs
    ]
    if made:
        yield _path(url, made, names)


# verb -> the methods it allows
_METHODS: Final[Mapping[str, tuple[str, ...]]] = {
    "create": ("post",),
    "delete": ("delete",),
    "get": ("get",),
    "patch": ("patch",),
    "update": ("put",),
}


def _connections(
    rt: ResourceType, subresource: Subresource, noun: str, options: tuple[Parameter, ...]
) -> list[PathOperation]:
    methods = {method for verb in subresource.verbs for method in _METHODS[verb]}
    if subresource.name == "proxy":
        methods |= {"head", "options"}
    return [
        PathOperation(
            method=method,
            id=f"connect{group_words(rt.group, rt.version)}{capital(method)}{noun}",
            description=f"connect {method.upper()} requests to {subresource.name} of {rt.kind}",
            tag=tag(rt.group, rt.version),
            answers={"200": TEXT},
            action="connect",
            kind=(subresource.group, subresource.version, subresource.kind),
            parameters=options,
            produces=ANYTHING,
        )
        for method in sorted(methods)
    ]


def _log(rt: ResourceType, subresource: Subresource, noun: str) -> PathOperation:
    return PathOperation(
        method="get",
        id=f"read{group_words(rt.group, rt.version)}{noun}",
        description=_description("get", rt, subresource.name),
        tag=tag(rt.group, rt.version),
        answers={"200": TEXT},
        action="get",
        kind=(rt.group, rt.version, rt.kind),
        parameters=(parameters.PRETTY, *parameters.LOG),
        produces=("text/plain", *MEDIA_TYPES),
    )


def _path(url: str, operations: Iterable[PathOperation], names: tuple[Parameter, ...]) -> DocumentPath:
    """Return a path with the common parameters of its operations moved to it, and all parameters sorted."""
    operations = list(operations)
    shared = set(operations[0].parameters).intersection(*(each.parameters for each in operations))
    rest = [
        replace(each, parameters=_sorted(one for one in each.parameters if one not in shared)) for each in operations
    ]
    return DocumentPath(url, _sorted((*names, *shared)), tuple(rest))


def _sorted(unsorted: Iterable[Parameter]) -> tuple[Parameter, ...]:
    return tuple(sorted(unsorted, key=lambda one: (one.name, one.place)))


# -- pages that are no resources --------------------------------------------------------------------------------------


def _page(
    url: str, operation: str, description: str, answer: str, tagged: str, produces: tuple[str, ...] = MEDIA_TYPES
) -> DocumentPath:
    consumes = produces if answer != TEXT else ()
    return DocumentPath(
        url,
        (),
        (
            PathOperation(
                method="get",
                id=operation,
                description=description,
                tag=tagged,
                answers={"200": answer},
                consumes=consumes,
                produces=produces,
            ),
        ),
    )


def group_page(group: str) -> DocumentPath:
    return _page(
        f"/apis/{group}/",
        f"get{group_words(group)}APIGroup",
        "get information of a group",
        META + "APIGroup",
        tag(group),
    )


_VERSIONS: Final = "get available API versions"
PAGES: Final[Mapping[str, DocumentPath]] = {
    "api": _page("/api/", "getCoreAPIVersions", _VERSIONS, META + "APIVersions", "core"),
    "apis": _page("/apis/", "getAPIVersions", _VERSIONS, META + "APIGroupList", "apis"),
    "version": _page(
        "/version/", "getCodeVersion", "get the version information for this server",
        "io.k8s.apimachinery.pkg.version.Info", "version", ("application/json",),
    ),
    ".well-known/openid-configuration": _page(
        "/.well-known/openid-configuration/", "getServiceAccountIssuerOpenIDConfiguration",
        "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'",
        TEXT, "WellKnown", ("application/json",),
    ),
    "openid/v1/jwks": _page(
        "/openid/v1/jwks/", "getServiceAccountIssuerOpenIDKeyset",
        "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)",
        TEXT, "openid", ("application/jwk-set+json",),
    ),
}  # fmt: skip
"""Path without its slash -> the page, for pages that are no resources."""
