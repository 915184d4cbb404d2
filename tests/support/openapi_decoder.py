"""Reads the protobuf form of OpenAPI documents back into JSON, with protobuf's own decoder.

The messages are described here a second time, independently of the encoder's tables. All fields are in the order of
their numbers (1, 2, 3, …):

    field            a string        field:b :i :d    bool, int64, double      field:*     a repeated string
    field:Message    a message       field:*Message   a repeated one           Message?    its fields are a oneof

``NamedX`` is always {name, value: X}. Messages without a description are opaque.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

V2: Final = {
    "Document": (
        "swagger info:Info host base_path schemes:* consumes:* produces:* paths:Paths definitions:Definitions "
        "parameters:ParameterDefinitions responses:ResponseDefinitions security:*SecurityRequirement "
        "security_definitions:SecurityDefinitions tags:*Tag external_docs:ExternalDocs vendor_extension:*NamedAny"
    ),
    "Info": "title version description terms_of_service contact:Contact license:License vendor_extension:*NamedAny",
    "Paths": "vendor_extension:*NamedAny path:*NamedPathItem",
    "Definitions": "additional_properties:*NamedSchema",
    "ParameterDefinitions": "additional_properties:*NamedParameter",
    "SecurityRequirement": "additional_properties:*NamedStringArray",
    "SecurityDefinitions": "additional_properties:*NamedSecurityDefinitionsItem",
    "Any": "value:y yaml",
    "PathItem": (
        "_ref get:Operation put:Operation post:Operation delete:Operation options:Operation head:Operation "
        "patch:Operation parameters:*ParametersItem vendor_extension:*NamedAny"
    ),
    "Schema": (
        "_ref format title description default:Any multiple_of:d maximum:d exclusive_maximum:b minimum:d "
        "exclusive_minimum:b max_length:i min_length:i pattern max_items:i min_items:i unique_items:b "
        "max_properties:i min_properties:i required:* enum:*Any additional_properties:AdditionalPropertiesItem "
        "type:TypeItem items:ItemsItem all_of:*Schema properties:Properties discriminator read_only:b xml:Xml "
        "external_docs:ExternalDocs example:Any vendor_extension:*NamedAny"
    ),
    "Parameter?": "body_parameter:BodyParameter non_body_parameter:NonBodyParameter",
    "StringArray": "value:*",
    "SecurityDefinitionsItem?": (
        "basic_authentication_security:BasicAuthenticationSecurity api_key_security:ApiKeySecurity "
        "oauth2_implicit_security:Oauth2ImplicitSecurity oauth2_password_security:Oauth2PasswordSecurity "
        "oauth2_application_security:Oauth2ApplicationSecurity "
        "oauth2_access_code_security:Oauth2AccessCodeSecurity"
    ),
    "Operation": (
        "tags:* summary description external_docs:ExternalDocs operation_id produces:* consumes:* "
        "parameters:*ParametersItem responses:Responses schemes:* deprecated:b security:*SecurityRequirement "
        "vendor_extension:*NamedAny"
    ),
    "ParametersItem?": "parameter:Parameter json_reference:JsonReference",
    "AdditionalPropertiesItem?": "schema:Schema boolean:b",
    "TypeItem": "value:*",
    "ItemsItem": "schema:*Schema",
    "Properties": "additional_properties:*NamedSchema",
    "BodyParameter": "description name in required:b schema:Schema vendor_extension:*NamedAny",
    "NonBodyParameter?": (
        "header_parameter_sub_schema:HeaderParameterSubSchema "
        "form_data_parameter_sub_schema:FormDataParameterSubSchema "
        "query_parameter_sub_schema:QueryParameterSubSchema path_parameter_sub_schema:PathParameterSubSchema"
    ),
    "ApiKeySecurity": "type name in description vendor_extension:*NamedAny",
    "Responses": "response_code:*NamedResponseValue vendor_extension:*NamedAny",
    "JsonReference": "_ref description",
    "QueryParameterSubSchema": (
        "required:b in description name allow_empty_value:b type format items:PrimitivesItems collection_format "
        "default:Any maximum:d exclusive_maximum:b minimum:d exclusive_minimum:b max_length:i min_length:i pattern "
        "max_items:i min_items:i unique_items:b enum:*Any multiple_of:d vendor_extension:*NamedAny"
    ),
    "PathParameterSubSchema": (
        "required:b in description name type format items:PrimitivesItems collection_format default:Any maximum:d "
        "exclusive_maximum:b minimum:d exclusive_minimum:b max_length:i min_length:i pattern max_items:i "
        "min_items:i unique_items:b enum:*Any multiple_of:d vendor_extension:*NamedAny"
    ),
    "ResponseValue?": "response:Response json_reference:JsonReference",
    "Response": "description schema:SchemaItem headers:Headers examples:Examples vendor_extension:*NamedAny",
    "SchemaItem?": "schema:Schema file_schema:FileSchema",
}
V3: Final = {
    "Document": (
        "openapi info:Info servers:*Server paths:Paths components:Components security:*SecurityRequirement "
        "tags:*Tag external_docs:ExternalDocs specification_extension:*NamedAny"
    ),
    "Info": (
        "title description terms_of_service contact:Contact license:License version "
        "specification_extension:*NamedAny summary"
    ),
    "Paths": "path:*NamedPathItem specification_extension:*NamedAny",
    "Components": (
        "schemas:SchemasOrReferences responses:ResponsesOrReferences parameters:ParametersOrReferences "
        "examples:ExamplesOrReferences request_bodies:RequestBodiesOrReferences headers:HeadersOrReferences "
        "security_schemes:SecuritySchemesOrReferences links:LinksOrReferences callbacks:CallbacksOrReferences "
        "specification_extension:*NamedAny"
    ),
    "SecurityRequirement": "additional_properties:*NamedStringArray",
    "SchemasOrReferences": "additional_properties:*NamedSchemaOrReference",
    "SecuritySchemesOrReferences": "additional_properties:*NamedSecuritySchemeOrReference",
    "Any": "value:y yaml",
    "PathItem": (
        "_ref summary description get:Operation put:Operation post:Operation delete:Operation options:Operation "
        "head:Operation patch:Operation trace:Operation servers:*Server parameters:*ParameterOrReference "
        "specification_extension:*NamedAny"
    ),
    "StringArray": "value:*",
    "Operation": (
        "tags:* summary description external_docs:ExternalDocs operation_id parameters:*ParameterOrReference "
        "request_body:RequestBodyOrReference responses:Responses callbacks:CallbacksOrReferences deprecated:b "
        "security:*SecurityRequirement servers:*Server specification_extension:*NamedAny"
    ),
    "ParameterOrReference?": "parameter:Parameter reference:Reference",
    "SchemaOrReference?": "schema:Schema reference:Reference",
    "SecuritySchemeOrReference?": "security_scheme:SecurityScheme reference:Reference",
    "RequestBodyOrReference?": "request_body:RequestBody reference:Reference",
    "Responses": (
        "default:ResponseOrReference response_or_reference:*NamedResponseOrReference specification_extension:*NamedAny"
    ),
    "Parameter": (
        "name in description required:b deprecated:b allow_empty_value:b style explode:b allow_reserved:b "
        "schema:SchemaOrReference example:Any examples:ExamplesOrReferences content:MediaTypes "
        "specification_extension:*NamedAny"
    ),
    "Reference": "_ref summary description",
    "Schema": (
        "nullable:b discriminator:Discriminator read_only:b write_only:b xml:Xml external_docs:ExternalDocs "
        "example:Any deprecated:b title multiple_of:d maximum:d exclusive_maximum:b minimum:d exclusive_minimum:b "
        "max_length:i min_length:i pattern max_items:i min_items:i unique_items:b max_properties:i "
        "min_properties:i required:* enum:*Any type all_of:*SchemaOrReference one_of:*SchemaOrReference "
        "any_of:*SchemaOrReference not:Schema items:ItemsItem properties:Properties "
        "additional_properties:AdditionalPropertiesItem default:DefaultType description format "
        "specification_extension:*NamedAny"
    ),
    "SecurityScheme": (
        "type description name in scheme bearer_format flows:OauthFlows open_id_connect_url "
        "specification_extension:*NamedAny"
    ),
    "RequestBody": "description content:MediaTypes required:b specification_extension:*NamedAny",
    "ResponseOrReference?": "response:Response reference:Reference",
    "MediaTypes": "additional_properties:*NamedMediaType",
    "ItemsItem": "schema_or_reference:*SchemaOrReference",
    "Properties": "additional_properties:*NamedSchemaOrReference",
    "AdditionalPropertiesItem?": "schema_or_reference:SchemaOrReference boolean:b",
    "DefaultType?": "number:d boolean:b string",
    "Response": (
        "description headers:HeadersOrReferences content:MediaTypes links:LinksOrReferences "
        "specification_extension:*NamedAny"
    ),
    "MediaType": (
        "schema:SchemaOrReference example:Any examples:ExamplesOrReferences encoding:Encodings "
        "specification_extension:*NamedAny"
    ),
}

_SCALARS: Final = {"": 9, "b": 8, "i": 3, "d": 1, "y": 12}
_PAIRS: Final = {
    "additional_properties",
    "path",
    "response_code",
    "response_or_reference",
    "specification_extension",
    "vendor_extension",
}
_LISTS: Final = {"ItemsItem", "TypeItem", "StringArray"}


def _rows(table: dict[str, str]) -> Iterator[tuple[str, bool, list[tuple[str, str]]]]:
    """Yield (message, it is a oneof, its fields and their types), with messages that are only named."""
    described = {name.rstrip("?") for name in table}
    named: set[str] = set()
    for name, row in table.items():
        fields = [(field, kind) for field, _, kind in (word.partition(":") for word in row.split())]
        named |= {kind.lstrip("*") for _, kind in fields}
        yield name.rstrip("?"), name.endswith("?"), fields
    for name in sorted(named - described - set(_SCALARS)):
        yield name, False, [("name", ""), ("value", name.removeprefix("Named"))] if name.startswith("Named") else []


def _classes(table: dict[str, str], package: str) -> Any:
    """Return the class of the message Document."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    rows = list(_rows(table))
    described = {name for name, _, _ in rows}
    values = {kind.lstrip("*") for _, _, fields in rows for _, kind in fields} - described - set(_SCALARS)
    for name, oneof, fields in [*rows, *((name, False, []) for name in sorted(values))]:
        message = file.message_type.add(name=name)
        if oneof:
            message.oneof_decl.add(name="oneof")
        for number, (field, kind) in enumerate(fields, start=1):
            repeated, kind = kind.startswith("*"), kind.lstrip("*")
            descriptor = message.field.add(name=field, number=number, label=3 if repeated else 1)
            if kind in _SCALARS:
                descriptor.type = _SCALARS[kind]
            else:
                descriptor.type, descriptor.type_name = 11, f".{package}.{kind}"
            if oneof:
                descriptor.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.Document"))


DOCUMENT_V2: Final = _classes(V2, "openapi.v2")
DOCUMENT_V3: Final = _classes(V3, "openapi.v3")


def decode_document(data: bytes, *, v3: bool) -> Any:
    """Return the JSON document of a protobuf one. AssertionError for unknown fields."""
    message = (DOCUMENT_V3 if v3 else DOCUMENT_V2)()
    message.ParseFromString(data)
    assert message.SerializeToString(deterministic=True) == data  # in the order of numbers, without unknown fields
    return _json(message)


def _json(message: Any) -> Any:
    name = message.DESCRIPTOR.name
    if message.DESCRIPTOR.oneofs:
        chosen = message.WhichOneof("oneof")
        return {} if chosen is None else _plain(getattr(message, chosen))
    if name == "Any":
        return yaml.safe_load(message.yaml)
    fields = message.ListFields()
    if name in _LISTS:
        items = [_plain(one) for _, value in fields for one in value]
        return items if name == "StringArray" else items[0]
    document: dict[str, Any] = {}
    for field, value in fields:
        if field.is_repeated and field.name in _PAIRS:
            document |= {pair.name: _json(pair.value) for pair in value}
        else:
            key = "$ref" if field.name == "_ref" else re.sub("_(.)", lambda match: match[1].upper(), field.name)
            document[key] = [_plain(one) for one in value] if field.is_repeated else _plain(value)
    return document


def _plain(value: Any) -> Any:
    return _json(value) if hasattr(value, "DESCRIPTOR") else value
