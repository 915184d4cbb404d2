"""OpenAPI v2 documents as v3: a small one by hand, and this server's own, whose v3 documents are known."""

from __future__ import annotations

from typing import Any

from kubechronicle.api.openapi import conversion, messages, v2, v3
from kubechronicle.api.registry.registry import builtin_registry

THING = {
    "description": "A thing.",
    "type": "object",
    "properties": {
        "metadata": {"description": "Its data.", "$ref": "#/definitions/Meta"},
        "more": {"type": "object", "additionalProperties": {"$ref": "#/definitions/Meta"}},
        "items": {"type": "array", "items": {"$ref": "#/definitions/Meta"}},
    },
}
V2: dict[str, Any] = {
    "swagger": "2.0",
    "info": {"title": "t", "version": "v1"},
    "paths": {
        "/apis/g/v1/things": {
            "parameters": [{"$ref": "#/parameters/pretty"}],
            "post": {
                "operationId": "createThing",
                "consumes": ["application/json"],
                "produces": ["application/json", "application/yaml"],
                "schemes": ["https"],
                "parameters": [
                    {"name": "body", "in": "body", "required": True, "schema": {"$ref": "#/definitions/Thing"}},
                    {"name": "limit", "in": "query", "type": "integer", "uniqueItems": True, "minimum": 1},
                ],
                "responses": {"200": {"description": "OK", "schema": {"$ref": "#/definitions/Thing"}}},
                "x-kubernetes-action": "post",
            },
        }
    },
    "definitions": {"Thing": THING, "Meta": {"type": "object"}},
    "parameters": {"pretty": {"name": "pretty", "in": "query", "type": "string", "description": "Pretty."}},
    "securityDefinitions": {"BearerToken": {"type": "apiKey", "name": "authorization", "in": "header"}},
}
PRETTY = {"name": "pretty", "in": "query", "description": "Pretty.", "schema": {"type": "string"}}


def test_a_small_document() -> None:
    made = conversion.to_v3(V2)
    schema = {"schema": {"$ref": "#/components/schemas/Thing"}}
    assert made["openapi"] == "3.0.0"
    assert made["info"] == V2["info"]
    assert made["paths"]["/apis/g/v1/things"] == {
        "parameters": [PRETTY],
        "post": {
            "operationId": "createThing",
            "x-kubernetes-action": "post",
            "requestBody": {"content": {"application/json": schema}},
            "parameters": [{"name": "limit", "in": "query", "schema": {"type": "integer", "uniqueItems": True}}],
            "responses": {
                "200": {"description": "OK", "content": {"application/json": schema, "application/yaml": schema}}
            },
        },
    }
    components = made["components"]
    meta = {"$ref": "#/components/schemas/Meta"}
    assert components["schemas"]["Thing"]["properties"] == {
        "metadata": {"description": "Its data.", "allOf": [meta]},
        "more": {"type": "object", "additionalProperties": meta},
        "items": {"type": "array", "items": meta},
    }
    assert components["securitySchemes"] == V2["securityDefinitions"]
    assert messages.V3.encode(made)


def test_the_own_document_has_the_same_operations_and_schemas() -> None:
    registry = builtin_registry()
    made = conversion.to_v3(v2.document(registry, (), server_version="v1.36.0"))
    known = v3.document(registry, "apis/apps/v1", server_version="v1.36.0")
    for path, item in known["paths"].items():
        for method, operation in item.items():
            if method != "parameters":
                assert made["paths"][path][method]["operationId"] == operation["operationId"]
                assert made["paths"][path][method].keys() == operation.keys()
    for name, schema in known["components"]["schemas"].items():
        assert made["components"]["schemas"][name].get("properties", {}).keys() == schema.get("properties", {}).keys()
    assert messages.V3.encode(made)
