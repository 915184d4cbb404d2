"""`kubechronicle convert`: convert objects between formats and between API versions.

    kubechronicle convert --to yaml < pod.pb
    kubechronicle convert --to yaml --output-version autoscaling/v2 < old-autoscalers.yaml

The input is a protobuf body (with its envelope), JSON or YAML, of one document or several. Its format is detected from
the bytes unless --from names it. Lists stay lists, and their items are converted one by one. Several documents stay
several in YAML, and become a v1 List in formats of one document. All known kinds and versions are read and written,
also those that no server serves. Nothing is defaulted. Conversion to another version or to protobuf drops fields that
the target does not have, as in Kubernetes.

There are no settings, files or servers here: bytes in, bytes out, and ``run`` for the command. Input that cannot be
converted is an OperatorError.
"""

from __future__ import annotations

import codecs
import json as stdlib_json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.codecs import json, protobuf, yaml
from kubechronicle.api.codecs.errors import CodecError, DecodeError
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.pipeline import body_types, conversion
from kubechronicle.api.schema import check, types
from kubechronicle.api.values.objects import Object
from kubechronicle.ops import terminal
from kubechronicle.ops.errors import OperatorError

FORMATS: Final = ("json", "yaml", "protobuf")
MAX_INPUT: Final = 256 * 1024 * 1024
"""Bytes of input; about a hundred times the limit of a server for one request."""

WATCH_EVENT: Final = "meta/v1.WatchEvent"
_GROUP_VERSION: Final = re.compile(r"(?:[a-z0-9.-]+/)?v[0-9][a-z0-9]*")


def run(source: str, target: str, output_version: str) -> int:
    """Convert stdin to stdout and return the exit code. Raise OperatorError."""
    try:
        data = sys.stdin.buffer.read(MAX_INPUT + 1)
    except (OSError, AttributeError) as error:  # AttributeError: stdin is closed
        raise OperatorError(f"cannot read stdin: {getattr(error, 'strerror', None) or 'it is closed'}") from None
    if len(data) > MAX_INPUT:
        raise OperatorError(f"the input is larger than {MAX_INPUT} bytes; convert it in parts")
    output = convert(data, source=source, target=target, output_version=output_version)
    try:
        terminal.stdout().bytes(output)
    except BrokenPipeError:
        terminal.stdout().discard()
        return 1
    except OSError as error:
        terminal.stdout().discard()
        raise OperatorError(f"cannot write to stdout: {error.strerror}") from None
    return 0


def convert(data: bytes, *, source: str = "", target: str, output_version: str = "") -> bytes:
    """Return the data in the format ``target``. ``source``: its format, "" to detect it. Raise OperatorError."""
    for flag, value in (("--from", source), ("--to", target)):
        if value not in FORMATS and (value or flag == "--to"):
            raise OperatorError(f"{flag}: must be one of {', '.join(FORMATS)}, got {value!r}")
    if output_version and not _GROUP_VERSION.fullmatch(output_version):
        raise OperatorError(f"--output-version: must be GROUP/VERSION, or v1, got {output_version!r}")
    try:
        objects = read(data, source or guess(data))
        if output_version:
            objects = [in_version(obj, output_version) for obj in objects]
        return write(objects, target)
    except CodecError as error:
        raise OperatorError(str(error)) from None


# -- reading ----------------------------------------------------------------------------------------------------------


def guess(data: bytes) -> str:
    """Return the format of a body: protobuf bodies begin with their magic, JSON with a brace or a bracket."""
    if data.startswith(protobuf.PREFIX):
        return "protobuf"
    start = data.removeprefix(codecs.BOM_UTF8).lstrip()
    if not start.startswith((b"{", b"[")):
        return "yaml"
    try:
        _json_documents(data)
    except DecodeError:
        # Braces are YAML as well. Text that is neither is more likely meant as JSON.
        try:
            yaml.decode_all(data)
        except DecodeError:
            return "json"
        return "yaml"
    return "json"


def read(data: bytes, source: str) -> list[Object]:
    """Return the objects in a body, at least one. Raise DecodeError, OperatorError."""
    if source == "protobuf":
        return [_from_protobuf(data)]
    documents = _json_documents(data) if source == "json" else yaml.decode_all(data)
    objects = [_checked(value) for value in documents if value is not None]
    if not objects:
        raise OperatorError("there is no object in the input")
    return objects


def _from_protobuf(data: bytes) -> Object:
    try:
        return protobuf.decode(data)
    except DecodeError as error:
        if "Object 'Kind' is missing" not in str(error):
            raise
    # A watch event is the only message that is written without its kind.
    event = protobuf.decode(data, default_api_version="v1", default_kind="WatchEvent")
    return {name: value for name, value in event.items() if name not in ("apiVersion", "kind")}


def _json_documents(data: bytes) -> list[Any]:
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return [json.decode_value(data)[0]]
    except DecodeError as error:
        parts = _json_parts(data.decode("utf-8", "replace"))
        if len(parts) < 2:
            raise error from None
    return [json.decode_value(part.encode())[0] for part in parts]


def _json_parts(text: str) -> list[str]:
    """Return the documents of a stream of JSON, or none if the text is no such stream."""
    decoder, parts = stdlib_json.JSONDecoder(), list[str]()
    at = _blanks(text, 0)
    while at < len(text):
        try:
            _, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return []
        parts.append(text[at:end])
        at = _blanks(text, end)
    return parts


_BLANK: Final = re.compile(r"[ \t\r\n]*")


def _blanks(text: str, at: int) -> int:
    blanks = _BLANK.match(text, at)
    return blanks.end() if blanks else at


def _checked(value: Any) -> Object:
    obj = json.as_object(value)
    if _is_watch_event(obj):
        return obj
    for field in ("kind", "apiVersion"):
        if not obj.get(field):
            raise OperatorError(f"an object has no {field}")
    return obj


def _is_watch_event(obj: Mapping[str, Any]) -> bool:
    """Recognize an event of a watch, which names no kind."""
    return "kind" not in obj and "apiVersion" not in obj and set(obj) == {"type", "object"}


# -- versions ---------------------------------------------------------------------------------------------------------


def in_version(obj: Object, api_version: str) -> Object:
    """Return an object, or a list with its items, in another version. Raise OperatorError if it has none such."""
    if _is_watch_event(obj):
        raise OperatorError("an event of a watch has no version to convert it to")
    kind, current = obj["kind"], obj["apiVersion"]
    items = obj.get("items")
    if (current, kind) == ("v1", "List"):
        if not isinstance(items, list):
            raise OperatorError("the items of a List must be a list")
        return {**obj, "items": [in_version(_checked(item), api_version) for item in items]}
    if current == api_version:
        return obj
    one = kind.removesuffix("List")
    if one != kind and conversion.can_convert(one, current, api_version):
        if items is not None and not isinstance(items, list):
            raise OperatorError(f"the items of a {kind} must be a list")
        converted = [_item_in_version(item, current, one, api_version) for item in items or ()]
        return {**obj, "apiVersion": api_version, "items": converted}
    if not conversion.can_convert(kind, current, api_version):
        raise OperatorError(f"{current} {kind} cannot be converted to {api_version}")
    return _converted(obj, api_version)


def _item_in_version(item: Any, current: str, kind: str, api_version: str) -> Object:
    """Convert an item of a typed list, which has no apiVersion and kind of its own."""
    if not isinstance(item, dict):
        raise OperatorError(f"an item of a {kind}List is not an object")
    typed = "kind" in item or "apiVersion" in item
    result = _converted({**item, "apiVersion": current, "kind": kind}, api_version)
    return result if typed else {name: value for name, value in result.items() if name not in ("apiVersion", "kind")}


def _converted(obj: Object, api_version: str) -> Object:
    obj = copy_object(obj)
    try:
        check.check(obj, types.object_type(body_types.definition_of(obj["apiVersion"], obj["kind"])))
    except check.TypeMismatch as error:
        raise OperatorError(f"{obj['apiVersion']} {obj['kind']}: {error}") from None
    return conversion.convert(obj, api_version)


# -- writing ----------------------------------------------------------------------------------------------------------


def write(objects: Sequence[Object], target: str) -> bytes:
    """Return the objects as bytes. Raise EncodeError for a kind without such a form or a value of a wrong type."""
    if target == "yaml":
        return b"---\n".join(yaml.encode(obj) for obj in objects)
    whole = objects[0] if len(objects) == 1 else _list_of(objects)
    return _WRITERS[target](whole)


def _list_of(objects: Sequence[Object]) -> Object:
    return {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": list(objects)}


def _to_protobuf(obj: Object) -> bytes:
    if _is_watch_event(obj):
        return protobuf.envelope("", "", protobuf.encode_message(WATCH_EVENT, obj))
    return protobuf.encode(obj)


_WRITERS: Final[Mapping[str, Callable[[Object], bytes]]] = {
    "json": lambda obj: json.encode(obj, pretty=True) + b"\n",
    "protobuf": _to_protobuf,
}
