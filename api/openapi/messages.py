"""The protobuf form of the documents: openapi.v2.Document and openapi.v3.Document, encoded from the JSON form.

Tables of field numbers (gnostic's OpenAPIv2.proto and OpenAPIv3.proto), and an encoder for them.

A message is a list of its JSON keys, ``key:number:kind``. Kinds are ``s`` (string), ``b`` (bool), ``i`` (int64), ``d``
(double), ``any`` (YAML text) and the names of messages, each also repeated (``*s``). Arbitrary keys are
``%:number:kind``: repeated pairs {1: key, 2: value}. Keys with ``x-`` are ``x:number``: pairs with a value of kind
``any``. For a oneof, a function chooses the message from the value.

The tables have only the keys of kube-apiserver's documents. Any other key is an EncodeError; none is silently omitted.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from kubechronicle.api.codecs import yaml
from kubechronicle.api.codecs.errors import EncodeError

_Field = tuple[int, str]
_Choice = Callable[[Any], _Field]

_OPERATIONS_V2: Final = " ".join(
    f"{method}:{number}:Operation"
    for number, method in enumerate(("get", "put", "post", "delete", "options", "head", "patch"), start=2)
)
_OPERATIONS_V3: Final = " ".join(
    f"{method}:{number}:Operation"
    for number, method in enumerate(("get", "put", "post", "delete", "options", "head", "patch", "trace"), start=4)
)

_V2: Final[Mapping[str, str]] = {
    "Document": (
        "swagger:1:s info:2:Info paths:8:Paths definitions:9:Definitions parameters:10:ParameterDefinitions "
        "security:12:*SecurityRequirement securityDefinitions:13:SecurityDefinitions x:16"
    ),
    "Info": "title:1:s version:2:s description:3:s x:7",
    "Paths": "x:1 %:2:PathItem",
    "PathItem": f"{_OPERATIONS_V2} parameters:9:*ParametersItem x:10",
    "Operation": (
        "tags:1:*s summary:2:s description:3:s operationId:5:s produces:6:*s consumes:7:*s "
        "parameters:8:*ParametersItem responses:9:Responses schemes:10:*s deprecated:11:b "
        "security:12:*SecurityRequirement x:13"
    ),
    "Responses": "%:1:ResponseValue x:2",
    "Response": "description:1:s schema:2:SchemaItem x:5",
    "JsonReference": "$ref:1:s description:2:s",
    "BodyParameter": "description:1:s name:2:s in:3:s required:4:b schema:5:Schema x:6",
    "QueryParameter": (
        "required:1:b in:2:s description:3:s name:4:s allowEmptyValue:5:b type:6:s format:7:s default:10:any "
        "uniqueItems:20:b enum:21:*any x:23"
    ),
    "PathParameter": (
        "required:1:b in:2:s description:3:s name:4:s type:5:s format:6:s default:9:any uniqueItems:19:b "
        "enum:20:*any x:22"
    ),
    "Schema": (
        "$ref:1:s format:2:s title:3:s description:4:s default:5:any multipleOf:6:d maximum:7:d exclusiveMaximum:8:b "
        "minimum:9:d exclusiveMinimum:10:b maxLength:11:i minLength:12:i pattern:13:s maxItems:14:i minItems:15:i "
        "uniqueItems:16:b maxProperties:17:i minProperties:18:i required:19:*s enum:20:*any "
        "additionalProperties:21:AdditionalPropertiesItem type:22:TypeItem items:23:ItemsItem allOf:24:*Schema "
        "properties:25:Definitions readOnly:27:b example:30:any x:31"
    ),
    "Definitions": "%:1:Schema",
    "ParameterDefinitions": "%:1:Parameter",
    "SecurityDefinitions": "%:1:SecurityDefinitionsItem",
    "SecurityRequirement": "%:1:StringArray",
    "ApiKeySecurity": "type:1:s name:2:s in:3:s description:4:s x:5",
}


def _is_reference(value: Any) -> bool:
    return isinstance(value, dict) and "$ref" in value


def _parameter_place(value: Any) -> _Field:
    numbers: Mapping[str, _Field] = {"query": (3, "QueryParameter"), "path": (4, "PathParameter")}
    return numbers[value["in"]]


_V2_CHOICES: Final[Mapping[str, _Choice]] = {
    "ResponseValue": lambda value: (2, "JsonReference") if _is_reference(value) else (1, "Response"),
    "SchemaItem": lambda value: (1, "Schema"),
    "ParametersItem": lambda value: (2, "JsonReference") if _is_reference(value) else (1, "Parameter"),
    "Parameter": lambda value: (1, "BodyParameter") if value["in"] == "body" else (2, "NonBodyParameter"),
    "NonBodyParameter": _parameter_place,
    "SecurityDefinitionsItem": lambda value: {"apiKey": (2, "ApiKeySecurity")}[value["type"]],
    "AdditionalPropertiesItem": lambda value: (2, "choice") if isinstance(value, bool) else (1, "Schema"),
    "TypeItem": lambda value: (1, "s") if isinstance(value, str) else (1, "*s"),
    "ItemsItem": lambda value: (1, "Schema"),
    "StringArray": lambda value: (1, "*s"),
}

_V3: Final[Mapping[str, str]] = {
    "Document": "openapi:1:s info:2:Info paths:4:Paths components:5:Components security:6:*SecurityRequirement x:9",
    "Info": "title:1:s description:2:s version:6:s x:7",
    "Paths": "%:1:PathItem x:2",
    "PathItem": f"summary:2:s description:3:s {_OPERATIONS_V3} parameters:13:*ParameterOrReference x:14",
    "Operation": (
        "tags:1:*s summary:2:s description:3:s operationId:5:s parameters:6:*ParameterOrReference "
        "requestBody:7:RequestBodyOrReference responses:8:Responses deprecated:10:b "
        "security:11:*SecurityRequirement x:13"
    ),
    "Reference": "$ref:1:s summary:2:s description:3:s",
    "Parameter": (
        "name:1:s in:2:s description:3:s required:4:b deprecated:5:b allowEmptyValue:6:b style:7:s explode:8:b "
        "allowReserved:9:b schema:10:SchemaOrReference example:11:any x:14"
    ),
    "RequestBody": "description:1:s content:2:MediaTypes required:3:b x:4",
    "MediaTypes": "%:1:MediaType",
    "MediaType": "schema:1:SchemaOrReference example:2:any x:5",
    "Responses": "default:1:ResponseOrReference %:2:ResponseOrReference x:3",
    "Response": "description:1:s content:3:MediaTypes x:5",
    "Components": "schemas:1:SchemasOrReferences securitySchemes:7:SecuritySchemesOrReferences x:10",
    "SchemasOrReferences": "%:1:SchemaOrReference",
    "SecuritySchemesOrReferences": "%:1:SecuritySchemeOrReference",
    "SecurityScheme": "type:1:s description:2:s name:3:s in:4:s scheme:5:s bearerFormat:6:s x:9",
    "SecurityRequirement": "%:1:StringArray",
    "Schema": (
        "nullable:1:b readOnly:3:b writeOnly:4:b example:7:any deprecated:8:b title:9:s multipleOf:10:d maximum:11:d "
        "exclusiveMaximum:12:b minimum:13:d exclusiveMinimum:14:b maxLength:15:i minLength:16:i pattern:17:s "
        "maxItems:18:i minItems:19:i uniqueItems:20:b maxProperties:21:i minProperties:22:i required:23:*s "
        "enum:24:*any type:25:s allOf:26:*SchemaOrReference oneOf:27:*SchemaOrReference anyOf:28:*SchemaOrReference "
        "not:29:Schema items:30:ItemsItem properties:31:SchemasOrReferences "
        "additionalProperties:32:AdditionalPropertiesItem default:33:DefaultType description:34:s format:35:s x:36"
    ),
}


def _default(value: Any) -> _Field:
    if isinstance(value, bool):
        return 2, "choice"
    if isinstance(value, int | float):
        return 1, "d choice"
    return (3, "s choice") if isinstance(value, str) else (0, "")


def _or_reference(message: str) -> _Choice:
    return lambda value: (2, "Reference") if _is_reference(value) else (1, message)


_V3_CHOICES: Final[Mapping[str, _Choice]] = {
    **{
        f"{name}OrReference": _or_reference(name)
        for name in ("Parameter", "RequestBody", "Response", "Schema", "SecurityScheme")
    },
    "ItemsItem": lambda value: (1, "SchemaOrReference"),
    "AdditionalPropertiesItem": lambda value: (2, "choice") if isinstance(value, bool) else (1, "SchemaOrReference"),
    # A default that is no scalar has no protobuf form: the message is empty.
    "DefaultType": _default,
    "StringArray": lambda value: (1, "*s"),
}


class _Message:
    """A row of a table.

    ``fields``: JSON key -> field.
    ``free``: the field of arbitrary keys, None if there are none.
    ``extensions``: the number of the ``x-`` keys' field, 0 if there is none.
    """

    __slots__ = ("extensions", "fields", "free")

    def __init__(self, row: str) -> None:
        self.fields: dict[str, _Field] = {}
        self.free: _Field | None = None
        self.extensions = 0
        for word in row.split():
            key, _, rest = word.partition(":")
            number, _, kind = rest.partition(":")
            if key == "x":
                self.extensions = int(number)
            elif key == "%":
                self.free = (int(number), kind)
            else:
                self.fields[key] = (int(number), kind)


class Messages:
    """The messages of one OpenAPI version."""

    def __init__(self, table: Mapping[str, str], choices: Mapping[str, _Choice]) -> None:
        self._messages = {name: _Message(row) for name, row in table.items()}
        self._choices = choices

    def encode(self, document: Mapping[str, Any]) -> bytes:
        """Return the bytes of the message Document. EncodeError for keys that are not in the tables."""
        try:
            return self._value("Document", document)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise EncodeError(f"this is no OpenAPI document: {error}") from error

    def _value(self, kind: str, value: Any) -> bytes:
        """Return a message's content."""
        choose = self._choices.get(kind)
        if choose is not None:
            number, chosen = choose(value)
            return self._field(number, chosen, value) if number else b""
        message = self._messages[kind]
        parts: list[tuple[int, bytes]] = []
        for key, member in value.items():
            field = message.fields.get(key)
            if field is not None:
                parts.append((field[0], self._field(*field, member)))
            elif key.startswith("x-") and message.extensions:
                parts.append((message.extensions, _pair(message.extensions, key, _any(member))))
            elif message.free is not None:
                number, each = message.free
                parts.append((number, _pair(number, key, self._value(each, member))))
            else:
                raise EncodeError(f"{kind} has no field {key}")
        parts.sort(key=lambda each: each[0])
        return b"".join(part for _, part in parts)

    def _field(self, number: int, kind: str, value: Any) -> bytes:
        """Return a field with its tag. Zero values are omitted, except in a oneof, where they mark the choice."""
        if kind.startswith("*"):
            return b"".join(self._element(number, kind[1:], each) for each in value)
        if kind in ("b", "choice"):
            return _tag(number, 0) + bytes((value,)) if value or kind == "choice" else b""
        if kind == "i":
            return _tag(number, 0) + _varint(value & 0xFFFFFFFFFFFFFFFF) if value else b""
        if kind in ("d", "d choice"):
            return _tag(number, 1) + struct.pack("<d", value) if value or kind == "d choice" else b""
        if kind == "s" and value == "":
            return b""
        return self._element(number, kind, value)

    def _element(self, number: int, kind: str, value: Any) -> bytes:
        if kind in ("s", "s choice"):
            return _bytes(number, value.encode())
        return _bytes(number, _any(value) if kind == "any" else self._value(kind, value))


def _any(value: Any) -> bytes:
    """Return the message Any {2: yaml}."""
    return _bytes(2, yaml.encode(value))


def _pair(number: int, name: str, value: bytes) -> bytes:
    return _bytes(number, _bytes(1, name.encode()) + _bytes(2, value))


def _bytes(number: int, content: bytes) -> bytes:
    return _tag(number, 2) + _varint(len(content)) + content


def _tag(number: int, wire: int) -> bytes:
    return _varint(number << 3 | wire)


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


V2: Final = Messages(_V2, _V2_CHOICES)
V3: Final = Messages(_V3, _V3_CHOICES)
