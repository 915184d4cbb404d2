"""OpenAPI v3 of what this server serves: the index, and one document per group-version (KEP-2896).

Paths and operations come from the registry, components from the published v1.36 definitions, with the rewrites of the
package that carries them undone (optional types as ``[T, null]``, enums of apiVersion and kind). kubectl reads
``paths.*.patch`` to learn whether the server validates fields, and the components to explain. Pure: the caller caches
the bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from kubechronicle.api.registry import Registry, ResourceType
from kubechronicle.api.schema.types import definitions

Document = dict[str, Any]

MEDIA_TYPES = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
STREAM_TYPES = ("application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch")
PATCH_TYPES = (
    "application/apply-patch+cbor",
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
META = "io.k8s.apimachinery.pkg.apis.meta.v1."
PATCH = META + "Patch"
STATUS = META + "Status"
DELETE_OPTIONS = META + "DeleteOptions"
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"

# Query parameters: name -> (OpenAPI type, description).
PARAMETERS: Mapping[str, tuple[str, str]] = {
    "allowWatchBookmarks": ("boolean", "Ask for watch events of type BOOKMARK."),
    "continue": ("string", "The continue token of the list to go on with."),
    "dryRun": ("string", "When present, nothing is persisted. Valid value: All."),
    "fieldManager": ("string", "The name of the actor that makes this change; at most 128 printable characters."),
    "fieldSelector": ("string", "Select objects by their fields. Defaults to everything."),
    "fieldValidation": ("string", "What to do about unknown or duplicate fields: Ignore, Warn (default) or Strict."),
    "force": ("boolean", "Acquire fields that other managers own; only for apply patches."),
    "gracePeriodSeconds": ("integer", "Seconds before the object is deleted; 0 deletes at once."),
    "labelSelector": ("string", "Select objects by their labels. Defaults to everything."),
    "limit": ("integer", "The most objects in one answer; more are fetched with its continue token."),
    "orphanDependents": ("boolean", "Deprecated: use propagationPolicy."),
    "pretty": ("string", "If 'true', the output is pretty printed."),
    "propagationPolicy": ("string", "What becomes of dependents: Orphan, Background or Foreground."),
    "resourceVersion": ("string", "The revision a read is served from."),
    "resourceVersionMatch": ("string", "How resourceVersion is applied to a list: Exact or NotOlderThan."),
    "sendInitialEvents": ("boolean", "Begin a watch with synthetic events of the objects there are."),
    "timeoutSeconds": ("integer", "How long a list or watch may take."),
    "watch": ("boolean", "Watch for changes instead of listing."),
}
LIST_PARAMETERS = (
    "allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit", "pretty", "resourceVersion",
    "resourceVersionMatch", "sendInitialEvents", "timeoutSeconds", "watch",
)  # fmt: skip
DELETE_PARAMETERS = ("dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy", "pretty")
WRITE_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation", "pretty")

# verb -> (HTTP method, x-kubernetes-action, operation id prefix, query parameters)
OPERATIONS: Mapping[str, tuple[str, str, str, tuple[str, ...]]] = {
    "list": ("get", "list", "list", LIST_PARAMETERS),
    "create": ("post", "post", "create", WRITE_PARAMETERS),
    "deletecollection": ("delete", "deletecollection", "deleteCollection", (*LIST_PARAMETERS, *DELETE_PARAMETERS)),
    "get": ("get", "get", "read", ("pretty",)),
    "update": ("put", "put", "replace", WRITE_PARAMETERS),
    "patch": ("patch", "patch", "patch", (*WRITE_PARAMETERS, "force")),
    "delete": ("delete", "delete", "delete", DELETE_PARAMETERS),
}
COLLECTION_VERBS = ("list", "create", "deletecollection")
OBJECT_VERBS = ("get", "update", "patch", "delete")


def group_version_path(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def index(hashes: Mapping[str, str]) -> Document:
    """/openapi/v3: the documents by path, each URL with the document's hash so that clients may cache it for ever."""
    return {
        "paths": {
            path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={found}"} for path, found in sorted(hashes.items())
        }
    }


def document_hash(registry: Registry, group: str, version: str, *, server_version: str) -> str:
    """Names the document's content without making it: what it is made of is the server's version (which fixes the
    built-in definitions) and the resources served."""
    served = (
        f"{rt.plural}/{rt.kind}/{','.join(rt.verbs)}/{','.join(rt.subresources)}"
        for rt in registry.resources(group, version)
    )
    text = "\n".join([server_version, group, version, *served])
    return hashlib.sha512(text.encode()).hexdigest().upper()


def document(registry: Registry, group: str, version: str, *, server_version: str) -> Document:
    """The document of one group-version. KeyError if the registry does not serve it."""
    paths: Document = {}
    needed: set[str] = set()
    for rt in registry.resources(group, version):
        for path, operations in _paths(rt, needed):
            paths[path] = operations
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": server_version},
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": _components(needed),
            "securitySchemes": {
                "BearerToken": {
                    "description": "Bearer Token authentication",
                    "type": "apiKey",
                    "name": "authorization",
                    "in": "header",
                }
            },
        },
    }


# -- paths ------------------------------------------------------------------------------------------------------------


def _paths(rt: ResourceType, needed: set[str]) -> Iterable[tuple[str, Document]]:
    base = "/" + group_version_path(rt.group, rt.version)
    where = f"{base}/namespaces/{{namespace}}/{rt.plural}" if rt.namespaced else f"{base}/{rt.plural}"
    scoped = "Namespaced" if rt.namespaced else ""
    collection = _operations(rt, rt.verbs, COLLECTION_VERBS, scoped + rt.kind, needed)
    if collection:
        yield where, _with_path_parameters(collection, namespaced=rt.namespaced, named=False)
    if rt.namespaced and "list" in rt.verbs:
        everywhere = _operations(rt, ("list",), ("list",), f"{rt.kind}ForAllNamespaces", needed)
        yield f"{base}/{rt.plural}", everywhere
    one = _operations(rt, rt.verbs, OBJECT_VERBS, scoped + rt.kind, needed)
    if one:
        yield f"{where}/{{name}}", _with_path_parameters(one, namespaced=rt.namespaced, named=True)
    for name, subresource in rt.subresources.items():
        suffix = "".join(part.capitalize() for part in name.split("/"))
        found = _operations(
            rt, subresource.verbs, (*OBJECT_VERBS, "create"), f"{scoped}{rt.kind}{suffix}", needed,
            kind=(subresource.group, subresource.version, subresource.kind),
        )  # fmt: skip
        if found:
            path = f"{where}/{{name}}/{name}"
            yield path, _with_path_parameters(found, namespaced=rt.namespaced, named=True)


def _operations(
    rt: ResourceType,
    served: Iterable[str],
    verbs: Iterable[str],
    noun: str,
    needed: set[str],
    *,
    kind: tuple[str, str, str] | None = None,
) -> Document:
    group, version, kind_name = kind or (rt.group, rt.version, rt.kind)
    definition = _definition_of(rt, kind_name)
    served = frozenset(served)
    found: Document = {}
    for verb in verbs:
        if verb not in served:
            continue
        method, action, prefix, parameters = OPERATIONS[verb]
        answer = STATUS if verb in ("delete", "deletecollection") else definition
        if verb == "list":
            answer = definition + "List"
        operation: Document = {
            "tags": [tag(rt.group, rt.version)],
            "description": f"{prefix} {noun}",
            "operationId": _operation_id(prefix, rt, noun),
            "parameters": [_query_parameter(name) for name in parameters],
            "responses": _responses(verb, answer, needed),
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind_name},
        }
        body = _request_body(verb, definition, needed)
        if body:
            operation["requestBody"] = body
        found[method] = operation
    return found


def _definition_of(rt: ResourceType, kind: str) -> str:
    """The definition of the kind a path takes and gives; a subresource's own kind stands beside the resource's."""
    if kind == rt.kind:
        return rt.definition
    beside = f"{rt.definition.rpartition('.')[0]}.{kind}"
    known = definitions()
    if beside in known:
        return beside
    return next((name for name in known if name.endswith(f".{kind}")), rt.definition)


def group_words(group: str) -> str:
    """``RbacAuthorization`` for rbac.authorization.k8s.io, ``Core`` for the empty group."""
    if not group:
        return "Core"
    words = group.removesuffix(".k8s.io").split(".")
    return "".join(word[:1].upper() + word[1:] for word in words)


def tag(group: str, version: str) -> str:
    words = group_words(group)
    return f"{words[:1].lower()}{words[1:]}_{version}"


def _operation_id(prefix: str, rt: ResourceType, noun: str) -> str:
    words = group_words(rt.group) + rt.version[:1].upper() + rt.version[1:]
    if prefix == "deleteCollection":
        return f"delete{words}Collection{noun}"
    return f"{prefix}{words}{noun}"


def _with_path_parameters(operations: Document, *, namespaced: bool, named: bool) -> Document:
    parameters = []
    if named:
        parameters.append(_path_parameter("name", "name of the object"))
    if namespaced:
        parameters.append(_path_parameter("namespace", "object name and auth scope, such as for teams and projects"))
    return {**operations, "parameters": parameters} if parameters else operations


def _path_parameter(name: str, description: str) -> Document:
    schema = {"type": "string", "uniqueItems": True}
    return {"name": name, "in": "path", "description": description, "required": True, "schema": schema}


def _query_parameter(name: str) -> Document:
    kind, description = PARAMETERS[name]
    return {"name": name, "in": "query", "description": description, "schema": {"type": kind, "uniqueItems": True}}


def _content(media_types: Iterable[str], definition: str, needed: set[str]) -> Document:
    needed.add(definition)
    return {each: {"schema": {"$ref": f"#/components/schemas/{definition}"}} for each in media_types}


def _responses(verb: str, definition: str, needed: set[str]) -> Document:
    types = (*MEDIA_TYPES, *STREAM_TYPES) if verb == "list" else MEDIA_TYPES
    content = {"description": "OK", "content": _content(types, definition, needed)}
    answers: Document = {"200": content, "401": {"description": "Unauthorized"}}
    if verb in ("create", "update", "patch"):
        answers["201"] = {**content, "description": "Created"}
    if verb in ("create", "delete"):
        answers["202"] = {**content, "description": "Accepted"}
    return dict(sorted(answers.items()))


def _request_body(verb: str, definition: str, needed: set[str]) -> Document | None:
    if verb in ("create", "update"):
        return {"content": _content(("*/*",), definition, needed), "required": True}
    if verb == "patch":
        return {"content": _content(PATCH_TYPES, PATCH, needed), "required": True}
    if verb in ("delete", "deletecollection"):
        return {"content": _content(("*/*",), DELETE_OPTIONS, needed)}
    return None


# -- components -------------------------------------------------------------------------------------------------------

_SPECIAL: Mapping[str, Document] = {
    QUANTITY: {
        "description": "A fixed-point number in a form like 500m, 2Gi or 1e3.",
        "oneOf": [{"type": "string"}, {"type": "number"}],
    },
    INT_OR_STRING: {
        "description": "An integer, or a string such as a percentage or the name of a port.",
        "format": "int-or-string",
        "oneOf": [{"type": "integer"}, {"type": "string"}],
    },
    PATCH: {"description": "The body of a patch, in the form its Content-Type names.", "type": "object"},
}


def _components(needed: set[str]) -> Document:
    """The definitions asked for and all they refer to."""
    found: Document = {}
    waiting = list(needed)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        references: set[str] = set()
        special = _SPECIAL.get(name)
        found[name] = special if special is not None else _schema(definitions().get(name, {}), references)
        waiting.extend(references - found.keys())
    return dict(sorted(found.items()))


def _schema(schema: Mapping[str, Any], references: set[str]) -> Document:
    made: Document = {}
    for key, value in schema.items():
        if key == "properties":
            made[key] = {name: _property(name, one, references) for name, one in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            made[key] = _schema(value, references)
        elif key == "type" and isinstance(value, list):
            made[key] = next((word for word in value if word != "null"), "object")
        elif key == "$ref":
            continue
        else:
            made[key] = value
    reference = schema.get("$ref")
    if reference is not None:
        name = reference.rpartition("/")[2]
        references.add(name)
        target = {"$ref": f"#/components/schemas/{name}"}
        # OpenAPI 3.0 ignores what stands beside a $ref, so a described reference is wrapped.
        return {**made, "allOf": [target]} if made else target
    return made


def _property(name: str, schema: Mapping[str, Any], references: set[str]) -> Document:
    made = _schema(schema, references)
    if name in ("apiVersion", "kind"):
        made.pop("enum", None)  # the carrying package's addition
    return made
