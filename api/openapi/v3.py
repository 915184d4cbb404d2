"""OpenAPI v3: the index, and a document for each group-version and for each other page (KEP-2896).

kubectl reads ``paths.*.patch`` to find out if the server validates fields, and the components for ``kubectl explain``.
Pure: the caller caches the bytes.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Final

from kubechronicle.api.openapi import operations, schemas
from kubechronicle.api.openapi.operations import TEXT, DocumentPath, PathOperation, group_version_path
from kubechronicle.api.openapi.parameters import Parameter
from kubechronicle.api.openapi.schemas import USUAL, SchemaChoices
from kubechronicle.api.registry.registry import Registry
from kubechronicle.api.schema.types import META

Document = dict[str, Any]

SECURITY_SCHEME: Final[Document] = {
    "BearerToken": {
        "description": "Bearer Token authentication",
        "type": "apiKey",
        "name": "authorization",
        "in": "header",
    }
}


_CUSTOM_INFO: Final = {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}
"""The head of the documents of custom resources (apiextensions-apiserver ``pkg/controller/openapi/builder``)."""


def served(registry: Registry, pages: Collection[str]) -> list[str]:
    """Return the paths of all documents. ``pages``: the paths of the server beside /api and /apis."""
    paths = ["api", "apis"]
    paths += [name for name in operations.PAGES if f"/{name}" in pages]
    for group in registry.groups():
        if group and not any(rt.custom for rt in _resources(registry, group)):
            paths.append(f"apis/{group}")
        paths += [group_version_path(group, version) for version in registry.versions(group)]
    return sorted(paths)


def index(hashes: Mapping[str, str], *, prefix: str = "") -> Document:
    """Return the index at /openapi/v3: path -> URL with the document's hash, so that clients can cache it for ever.

    ``prefix``: the beginning of the URLs."""
    urls = {path: f"{prefix}/openapi/v3/{path}?hash={digest}" for path, digest in sorted(hashes.items())}
    return {"paths": {path: {"serverRelativeURL": url} for path, url in urls.items()}}


def document_hash(registry: Registry, path: str, *, server_version: str, choices: SchemaChoices = USUAL) -> str:
    """Return a hash of a document's content without making it.

    The content follows from the code and tables it is made with, the server's version and the served resources."""
    group, version = _group_version(path)
    types = (
        f"{rt.plural}/{rt.kind}/{rt.list_kind}/{rt.namespaced}/{rt.definition}/{rt.custom}/{','.join(rt.verbs)}/"
        + ",".join(f"{one.name}:{one.kind}:{'+'.join(one.verbs)}" for one in rt.subresources.values())
        for rt in registry.resources(group, version)
    )
    text = "\n".join([_makers(), server_version, path, repr(choices), *types])
    return hashlib.sha512(text.encode()).hexdigest().upper()


@functools.cache
def _makers() -> str:
    """Return the digest of all code and tables that documents are made with. Takes about 20 ms, once."""
    digest = hashlib.sha512()
    api = resources.files("kubechronicle.api")
    for folder in ("kinds", "openapi", "schema", "builtin"):
        for file in _files(api.joinpath(folder)):
            if file.name.endswith((".py", ".json", ".txt")):
                digest.update(file.read_bytes())
    return digest.hexdigest()


def _files(folder: Traversable) -> Iterator[Traversable]:
    """Yield every file below a folder, always in the same order."""
    for each in sorted(folder.iterdir(), key=lambda each: each.name):
        if each.is_dir():
            yield from _files(each)
        else:
            yield each


def document(registry: Registry, path: str, *, server_version: str, choices: SchemaChoices = USUAL) -> Document:
    """Return the document of one of the paths of ``served``. KeyError for any other path."""
    group, version = _group_version(path)
    if path in operations.PAGES:
        paths = [operations.PAGES[path]]
    elif version:
        paths = list(operations.paths_of(registry, group, version))
    else:
        paths = [operations.group_page(group)] if group and registry.versions(group) else []
    if not paths:
        raise KeyError(path)
    if choices.cbor:
        paths = list(map(operations.with_cbor, paths))
    writer = schemas.SchemaWriter(v3=True, served=registry.resources(group, version), enums=choices.enums)
    needed: set[str] = set()
    written = {each.path: _path(each, writer, needed) for each in paths}
    custom = any(rt.custom is not None for rt in registry.resources(group, version))
    components: Document = {} if custom else {"securitySchemes": SECURITY_SCHEME}
    if needed:
        components["schemas"] = schemas.components(needed, writer.write)
        if version and not custom:
            _leave_own_kinds(components["schemas"], group, version)
    return {
        "openapi": "3.0.0",
        "info": _CUSTOM_INFO if custom else {"title": "Kubernetes", "version": server_version},
        "paths": dict(sorted(written.items())),
        "components": components,
    }


def _leave_own_kinds(made: Document, group: str, version: str) -> None:
    """Name the kinds that every group version has in this one and in v1 only (apiserver ``pkg/server/routes``)."""
    for kind in ("DeleteOptions", "WatchEvent"):
        shared = made.get(f"{META}{kind}")
        if shared is not None:
            shared["x-kubernetes-group-version-kind"] = [
                each
                for each in shared["x-kubernetes-group-version-kind"]
                if (each["group"], each["version"]) in ((group, version), ("", "v1"))
            ]


def _group_version(path: str) -> tuple[str, str]:
    """Return ``("apps", "v1")`` for apis/apps/v1, ``("apps", "")`` for apis/apps, ``("", "v1")`` for api/v1."""
    root, *rest = path.split("/")
    if root == "api" and len(rest) == 1:
        return "", rest[0]
    if root == "apis" and rest:
        return rest[0], "/".join(rest[1:])
    return "", ""


def _resources(registry: Registry, group: str) -> Iterable[Any]:
    return (rt for version in registry.versions(group) for rt in registry.resources(group, version))


def _path(path: DocumentPath, writer: schemas.SchemaWriter, needed: set[str]) -> Document:
    made: Document = {each.method: _operation(each, writer, needed) for each in path.operations}
    if path.parameters:
        made["parameters"] = [_parameter(each) for each in path.parameters]
    return made


def _operation(operation: PathOperation, writer: schemas.SchemaWriter, needed: set[str]) -> Document:
    made: Document = {
        "tags": [operation.tag],
        "description": operation.description,
        "operationId": operation.id,
        "responses": {},
    }
    if operation.parameters:
        made["parameters"] = [_parameter(each) for each in operation.parameters]
    if operation.body:
        needed.add(operation.body)
        schema = {"schema": writer.reference(operation.body)}
        made["requestBody"] = {"content": dict.fromkeys(operation.consumes, schema)}
        if operation.body_required:
            made["requestBody"]["required"] = True
    for code, definition in operation.answers.items():
        if definition != TEXT:
            needed.add(definition)
        schema = {"schema": {"type": "string"} if definition == TEXT else writer.reference(definition)}
        content = dict.fromkeys(operation.produces, schema)
        made["responses"][code] = {"description": WORDS[code], "content": content}
    made["responses"]["401"] = {"description": WORDS["401"]}
    if operation.action:
        made["x-kubernetes-action"] = operation.action
    if operation.kind is not None:
        made["x-kubernetes-group-version-kind"] = kind_of(operation.kind)
    return made


WORDS: Final[Mapping[str, str]] = {"200": "OK", "201": "Created", "202": "Accepted", "401": "Unauthorized"}


def kind_of(kind: tuple[str, str, str]) -> Document:
    group, version, name = kind
    return {"group": group, "kind": name, "version": version}


def _parameter(parameter: Parameter) -> Document:
    made: Document = {
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.description,
        "schema": {"type": parameter.type, "uniqueItems": True},
    }
    if parameter.place == "path":
        made["required"] = True
    return made
