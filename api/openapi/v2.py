"""OpenAPI v2 (Swagger 2.0) of everything the server serves, in one document.

kubectl before 1.27 and client generators read it. Shared parameters occur once, under names with a content hash
(kube-openapi pkg/builder/parameters.go): ``pretty-tJGM1-ng``. Pure: the caller caches the bytes.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from kubechronicle.api.codecs import json
from kubechronicle.api.openapi import operations, schemas
from kubechronicle.api.openapi.operations import TEXT, DocumentPath, PathOperation
from kubechronicle.api.openapi.parameters import Parameter
from kubechronicle.api.openapi.schemas import USUAL, SchemaChoices
from kubechronicle.api.openapi.v3 import SECURITY_SCHEME, WORDS, kind_of
from kubechronicle.api.registry.registry import Registry

Document = dict[str, Any]

# kubectl before 1.27 expects dryRun and fieldValidation in the operation itself. A name mentions its kind, so it is
# seldom shared.
_UNSHARED: Final = frozenset({"name", "dryRun", "fieldValidation"})
_SHARED_BODIES: Final = "io.k8s.apimachinery"


def document(
    registry: Registry, pages: Collection[str], *, server_version: str, choices: SchemaChoices = USUAL
) -> Document:
    """Return the document. ``pages``: the paths of the server beside /api and /apis."""
    writer = schemas.SchemaWriter(v3=False, served=registry, enums=choices.enums)
    maker = _Maker(writer)
    described = _paths(registry, pages)
    paths = {each.path: maker.path(operations.with_cbor(each) if choices.cbor else each) for each in described}
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": server_version},
        "paths": dict(sorted(paths.items())),
        "definitions": schemas.components(maker.needed, writer.write),
        "parameters": dict(sorted(maker.shared.items())),
        "securityDefinitions": SECURITY_SCHEME,
        "security": [{"BearerToken": []}],
    }


def _paths(registry: Registry, pages: Collection[str]) -> Iterator[DocumentPath]:
    for name, page in operations.PAGES.items():
        if name in ("api", "apis") or f"/{name}" in pages:
            yield page
    for group in registry.groups():
        for version in registry.versions(group):
            yield from operations.paths_of(registry, group, version)
        if group and not any(rt.custom for each in registry.versions(group) for rt in registry.resources(group, each)):
            yield operations.group_page(group)


class _Maker:
    """Writes paths, and collects their definitions in ``needed`` and their shared parameters in ``shared``."""

    def __init__(self, writer: schemas.SchemaWriter) -> None:
        self.needed: set[str] = set()
        self.shared: dict[str, Document] = {}
        self._writer = writer
        self._names: dict[Parameter | tuple[str, bool], Document] = {}

    def path(self, path: DocumentPath) -> Document:
        made: Document = {each.method: self._operation(each) for each in path.operations}
        if path.parameters:
            made["parameters"] = [self._parameter(each) for each in path.parameters]
        return made

    def _operation(self, operation: PathOperation) -> Document:
        made: Document = {
            "description": operation.description,
            "consumes": list(operation.consumes),
            "produces": list(operation.produces),
            "schemes": ["https"],
            "tags": [operation.tag],
            "operationId": operation.id,
            "responses": {},
        }
        if not operation.consumes:
            del made["consumes"]
        written = [self._parameter(each) for each in operation.parameters]
        if operation.body:
            written.insert(0, self._body(operation))
        if written:
            made["parameters"] = written
        for code, definition in operation.answers.items():
            if definition != TEXT:
                self.needed.add(definition)
            schema = {"type": "string"} if definition == TEXT else self._writer.reference(definition)
            made["responses"][code] = {"description": WORDS[code], "schema": schema}
        made["responses"]["401"] = {"description": WORDS["401"]}
        if operation.action:
            made["x-kubernetes-action"] = operation.action
        if operation.kind is not None:
            made["x-kubernetes-group-version-kind"] = kind_of(operation.kind)
        return made

    def _body(self, operation: PathOperation) -> Document:
        known = self._names.get((operation.body, operation.body_required))
        if known is None:
            self.needed.add(operation.body)
            made: Document = {"name": "body", "in": "body"}
            if operation.body_required:
                made["required"] = True
            made["schema"] = self._writer.reference(operation.body)
            known = self._share(made) if operation.body.startswith(_SHARED_BODIES) else made
            self._names[operation.body, operation.body_required] = known
        return known

    def _parameter(self, parameter: Parameter) -> Document:
        known = self._names.get(parameter)
        if known is None:
            made: Document = {
                "uniqueItems": True,
                "type": parameter.type,
                "description": parameter.description,
                "name": parameter.name,
                "in": parameter.place,
            }
            if parameter.place == "path":
                made["required"] = True
            known = made if parameter.name in _UNSHARED else self._share(made)
            self._names[parameter] = known
        return known

    def _share(self, parameter: Mapping[str, Any]) -> Document:
        name = f"{parameter['name']}-{content_hash(json.encode(parameter))}"
        self.shared[name] = dict(parameter)
        return {"$ref": f"#/parameters/{name}"}


def content_hash(content: bytes) -> str:
    """Return eight letters for a parameter's JSON: 48 bits of its 64-bit FNV-1 hash, in URL-safe base64."""
    fnv = 0xCBF29CE484222325
    for byte in content:
        fnv = (fnv * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF) ^ byte
    return base64.urlsafe_b64encode(fnv.to_bytes(8, "big")[:6]).decode()
