"""JSON bodies: decoded as by Go, Go's errors, duplicates, limits."""

from __future__ import annotations

import json as stdlib_json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubechronicle.api.codecs import json
from kubechronicle.api.codecs.errors import DecodeError, EncodeError

_STRUCT = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "unexpected end of JSON input"),
        (b'{"kind": "ConfigMap", ', "unexpected end of JSON input"),
        (b'{"apiVersion":', "unexpected end of JSON input"),
        (b'{"kind"', "unexpected end of JSON input"),
        (b"tru", "invalid character ' ' in literal true (expecting 'e')"),
        (b"-", "invalid character ' ' in numeric literal"),
        (b"1.", "invalid character ' ' after decimal point in numeric literal"),
        (b"1e", "invalid character ' ' in exponent of numeric literal"),
        (b'"\\u1', "invalid character ' ' in \\u hexadecimal character escape"),
        (b'"a', "unexpected end of JSON input"),
        (b"nonsense", "invalid character 'o' in literal null (expecting 'u')"),
        (b'{"a":1,}', "invalid character '}' looking for beginning of object key string"),
        (b"{'a':1}", "invalid character '\\'' looking for beginning of object key string"),
        (b'{"a" 1}', "invalid character '1' after object key"),
        (b'{"a":1 "b"}', "invalid character '\"' after object key:value pair"),
        (b"[1 2]", "invalid character '2' after array element"),
        (b"[1,]", "invalid character ']' looking for beginning of value"),
        (b"{} x", "invalid character 'x' after top-level value"),
        (b"01", "invalid character '1' after top-level value"),
        (b"-x", "invalid character 'x' in numeric literal"),
        (b"1.x", "invalid character 'x' after decimal point in numeric literal"),
        (b"1ex", "invalid character 'x' in exponent of numeric literal"),
        (b'"\\x"', "invalid character 'x' in string escape code"),
        (b'"\\u12g4"', "invalid character 'g' in \\u hexadecimal character escape"),
        (b'"a\nb"', "invalid character '\\n' in string literal"),
        (b"\xff", "invalid character 'ÿ' looking for beginning of value"),
        (b"\x00", "invalid character '\\x00' looking for beginning of value"),
        (b"NaN", "invalid character 'N' looking for beginning of value"),
        (b"[" * 20_000, "invalid character '[' exceeded max depth"),
        (b'{"a":1e999}', "json: cannot unmarshal number 1e999 into Go value of type float64"),
    ],
)
def test_rejected_documents(data: bytes, message: str) -> None:
    with pytest.raises(DecodeError) as caught:
        json.decode_value(data)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"[]", f"json: cannot unmarshal array into Go value of type {_STRUCT}"),
        (b'"x"', f"json: cannot unmarshal string into Go value of type {_STRUCT}"),
        (b"true", f"json: cannot unmarshal bool into Go value of type {_STRUCT}"),
        (b'{"kind":5}', "json: cannot unmarshal number into Go struct field .kind of type string"),
        (b'{"apiVersion":{}}', "json: cannot unmarshal object into Go struct field .apiVersion of type string"),
        (b"{", "unexpected end of JSON input"),
    ],
)
def test_documents_that_are_no_objects(data: bytes, problem: str) -> None:
    with pytest.raises(DecodeError) as caught:
        json.decode(data)
    assert str(caught.value) == f"couldn't get version/kind; json parse error: {problem}"


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a":"\xff"}', {"a": "\ufffd"}),
        (b'{"a":"\\ud800x"}', {"a": "\ufffdx"}),
        (b'{"a":9223372036854775807}', {"a": 9223372036854775807}),
        (b'{"a":-9223372036854775808}', {"a": -9223372036854775808}),
        (b'{"a":18446744073709551616}', {"a": 1.8446744073709552e19}),
        (b'{"a":1,"a":2}', {"a": 2}),
        (b" null ", None),
    ],
)
def test_documents_that_go_accepts(data: bytes, value: Any) -> None:
    assert json.decode_value(data) == (value, [])
    assert json.decode(data)[0] == (value or {})


def test_duplicate_fields_are_reported_by_path() -> None:
    body = b'{"metadata":{"name":"a","name":"a"},"l":[0,{"x":1,"x":2,"x":3}],"data":{"k":"1","k":"2"},"l2":{}}'
    value, duplicates = json.decode(body, strict=True)
    assert value["data"] == {"k": "2"}
    assert duplicates == ['duplicate field "metadata.name"', 'duplicate field "l[1].x"', 'duplicate field "data.k"']
    assert json.decode(body) == (value, [])


def test_no_duplicates_in_a_body_with_blanks_and_escapes() -> None:
    assert json.decode(b'{ "a" : "\\u003c" , "b":[{"a":1},{"a":1}]}\n', strict=True)[1] == []


@pytest.mark.parametrize(
    "twice",
    [
        b'{"a": 1, "a": 2}',
        b'{"a" :1, "a" :2}',
        b'{"a":1,"a":"\\u0022:"}',
        b'{"a":1,"a":"\\u003ab"}',
        b'{"a":1,"a":"\\u003A"}',
        b'{"a":1,\n"a"\n:":"}',
        b'{"b\\\\":1,"b\\\\":2, "c":"\\":"}',
        b'{"a": {"x": ":y"}, "a":":"}',
    ],
)
def test_a_duplicate_is_found_in_any_spelling(twice: bytes) -> None:
    assert len(json.decode(twice, strict=True)[1]) == 1


def test_depth_is_limited_in_both_directions() -> None:
    def nested(levels: int) -> bytes:
        return b'{"a":' * levels + b"1" + b"}" * levels

    value, _ = json.decode_value(nested(json.MAX_DEPTH))
    assert json.encode({"items": [value]})
    with pytest.raises(DecodeError, match="exceeded max depth"):
        json.decode_value(nested(json.MAX_DEPTH + 1))
    with pytest.raises(EncodeError):
        json.encode({"a": object()})


def test_encoding() -> None:
    assert json.encode({"b": 1, "a": ["é", None]}) == '{"b":1,"a":["é",null]}'.encode()
    assert json.encode({"a": [1]}, pretty=True) == b'{\n  "a": [\n    1\n  ]\n}'


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "<empty>"),
        (b'{"a":', '{"a":'),
        (b"[]", "5b5d"),
        (b"{" + b"x" * 40, "{" + "x" * 29 + " ..."),
        (b"y" * 40, "79" * 30 + " ..."),
    ],
)
def test_summary_of_a_body(data: bytes, text: str) -> None:
    assert json.summary(data) == text


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(-1e15, 1e15) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@given(_JSON)
@settings(deadline=None)
def test_round_trip(value: Any) -> None:
    assert json.decode_value(json.encode(value), strict=True) == (value, [])
    assert json.decode_value(stdlib_json.dumps(value, indent=1).encode(), strict=True) == (value, [])


@given(st.binary(max_size=40) | st.text('{}[]",:\\ue+-.0123tfn ', max_size=30).map(str.encode))
@settings(max_examples=500, deadline=None)
def test_any_bytes_decode_or_are_rejected(data: bytes) -> None:
    try:
        value, _ = json.decode_value(data, strict=True)
    except DecodeError:
        return
    assert stdlib_json.loads(json.encode(value)) == value


def test_a_dense_document_that_starts_as_if_it_were_indented() -> None:
    data = b'{\n  "a": [' + b"1," * 300_000 + b"1]}"
    value, _ = json.decode_value(data, strict=True)
    assert len(value["a"]) == 300_001
