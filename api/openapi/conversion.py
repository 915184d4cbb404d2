"""OpenAPI v2 documents turned into v3, for servers that have no v3 documents.

    definitions                          components.schemas
    securityDefinitions                  components.securitySchemes
    shared parameters and responses      those themselves, where they are referred to
    a parameter "body" with a schema     requestBody, for each type that the operation consumes
    the schema of a response             content, for each type that the operation produces
    a reference with other members       allOf with the reference

As in Kubernetes, the conversion loses bounds and defaults of parameters. Source: kube-openapi
``pkg/openapiconv``, ``pkg/builder3/util``. Pure functions. No argument is changed, but results share parts with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

Document = dict[str, Any]

VERSION: Final = "3.0.0"
DEFINITION, SCHEMA = "#/definitions/", "#/components/schemas/"
PARAMETER, RESPONSE = "#/parameters/", "#/responses/"
METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch")
OPERATION_MEMBERS: Final = ("tags", "summary", "description", "externalDocs", "operationId", "deprecated")
PARAMETER_MEMBERS: Final = ("name", "in", "description", "required", "allowEmptyValue")
SCHEMAS: Final = frozenset(("items", "additionalProperties", "additionalItems", "not"))
"""Members that hold one schema (or a boolean, or a list of schemas)."""
SCHEMA_LISTS: Final = frozenset(("allOf", "anyOf", "oneOf"))
SCHEMA_MAPS: Final = frozenset(("properties", "patternProperties", "definitions"))


def to_v3(document: Mapping[str, Any]) -> Document:
    """Return a v3 document. AttributeError, KeyError, TypeError, RecursionError: the v2 one is malformed."""
    paths = document.get("paths") or {}
    made: Document = {"openapi": VERSION, "info": document.get("info") or {}}
    if document.get("externalDocs"):
        made["externalDocs"] = document["externalDocs"]
    shared = _Shared(document.get("parameters") or {}, document.get("responses") or {})
    made["paths"] = {
        path: item if path.startswith("x-") else _path_item(item, shared) for path, item in sorted(paths.items())
    }
    made["components"] = _components(document)
    return made


class _Shared(NamedTuple):
    """Parameters and responses by name. They are put where they are referred to."""

    parameters: Mapping[str, Any]
    responses: Mapping[str, Any]

    def parameter(self, one: Mapping[str, Any]) -> Mapping[str, Any]:
        return _resolved(one, PARAMETER, self.parameters)

    def response(self, one: Mapping[str, Any]) -> Mapping[str, Any]:
        return _resolved(one, RESPONSE, self.responses)


def _resolved(one: Mapping[str, Any], prefix: str, named: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = one.get("$ref")
    if not isinstance(reference, str) or not reference.startswith(prefix):
        return one
    found: Mapping[str, Any] = named[reference.removeprefix(prefix)]
    return found


def _components(document: Mapping[str, Any]) -> Document:
    components: Document = {}
    for member, target, convert in (
        ("definitions", "schemas", _schema),
        ("securityDefinitions", "securitySchemes", _security_scheme),
    ):
        found = document.get(member)
        if found:
            components[target] = {name: convert(one) for name, one in sorted(found.items())}
    return components


def _path_item(item: Mapping[str, Any], shared: _Shared) -> Document:
    made: Document = _extensions(item)
    if "$ref" in item:
        made["$ref"] = item["$ref"]
    for method in METHODS:
        if item.get(method) is not None:
            made[method] = _operation(item[method], shared)
    if item.get("parameters"):
        made["parameters"] = [_parameter(shared.parameter(one)) for one in item["parameters"]]
    return made


def _operation(operation: Mapping[str, Any], shared: _Shared) -> Document:
    made = _extensions(operation) | {name: operation[name] for name in OPERATION_MEMBERS if operation.get(name)}
    parameters = []
    for one in map(shared.parameter, operation.get("parameters") or ()):
        if one.get("name") == "body" and one.get("schema") is not None:
            body: Document = {}
            if operation.get("consumes"):
                body["content"] = {each: {"schema": _schema(one["schema"])} for each in operation["consumes"]}
            made["requestBody"] = body
        else:
            parameters.append(_parameter(one))
    if parameters:
        made["parameters"] = parameters
    produces = operation.get("produces") or ()
    made["responses"] = {
        code: one if code.startswith("x-") else _response(shared.response(one), produces)
        for code, one in (operation.get("responses") or {}).items()
    }
    return made


def _response(response: Mapping[str, Any], produces: Sequence[str]) -> Document:
    made = _extensions(response) | {"description": response.get("description", "")}
    if response.get("schema") is not None and produces:
        made["content"] = {each: {"schema": _schema(response["schema"])} for each in produces}
    return made


def _parameter(parameter: Mapping[str, Any]) -> Document:
    made = _extensions(parameter) | {name: parameter[name] for name in PARAMETER_MEMBERS if parameter.get(name)}
    if parameter.get("schema") is not None:
        made["schema"] = _schema(parameter["schema"])
    else:
        made["schema"] = {name: parameter[name] for name in ("type", "format", "uniqueItems") if parameter.get(name)}
    return made


def _security_scheme(scheme: Mapping[str, Any]) -> Document:
    made = _extensions(scheme)
    made |= {name: scheme[name] for name in ("type", "description", "name", "in") if scheme.get(name)}
    if scheme.get("flow"):
        flow = {name: scheme[name] for name in ("authorizationUrl", "tokenUrl", "scopes") if scheme.get(name)}
        made["flows"] = {scheme["flow"]: flow}
    return made


def _schema(schema: Any) -> Any:
    """Return a schema with references to components. One with other members is put into ``allOf``."""
    if isinstance(schema, list):
        return [_schema(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made: Document = {}
    for member, value in schema.items():
        if member in SCHEMAS or member in SCHEMA_LISTS:
            made[member] = _schema(value)
        elif member in SCHEMA_MAPS:
            made[member] = {name: _schema(one) for name, one in value.items()}
        else:
            made[member] = value
    reference = made.get("$ref")
    if isinstance(reference, str):
        made["$ref"] = _reference(reference)
        if len(made) > 1:
            made["allOf"] = [{"$ref": made.pop("$ref")}]
    return made


def _reference(reference: str) -> str:
    return SCHEMA + reference.partition(DEFINITION)[2] if DEFINITION in reference else reference


def _extensions(value: Mapping[str, Any]) -> Document:
    return {member: one for member, one in value.items() if member.startswith("x-")}
