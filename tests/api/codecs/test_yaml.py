"""YAML bodies: go-yaml's scalars, errors and limits, and output that reads back the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubechronicle.api.codecs import yaml
from kubechronicle.api.codecs.errors import DecodeError, EncodeError
from kubechronicle.api.codecs.json import MAX_DEPTH


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("y", True),
        ("No", False),
        ("ON", True),
        ("~", None),
        ("", None),
        ("nUll", "nUll"),
        ("010", 8),
        ("0o17", 15),
        ("0x1F", 31),
        ("-0b11", -3),
        ("1_000", 1000),
        ("08", 8),
        ("+5", 5),
        ("1e3", 1000),
        ("1.50", 1.5),
        (".5", 0.5),
        ("1.", 1),
        ("1.0", 1),
        ("1e400", "1e400"),
        ("9223372036854775807", 9223372036854775807),
        ("9223372036854775808", 9.223372036854775808e18),
        ("99999999999999999999", 1e20),
        ("2020-01-01", "2020-01-01"),
        ("2020-01-01T00:00:00Z", "2020-01-01T00:00:00Z"),
        ("1:30", "1:30"),
        ("0.1.2", "0.1.2"),
        ("=", "="),
        ("'1'", "1"),
        ('"true"', "true"),
        ("!!str 5", "5"),
        ("!!int '5'", 5),
        ("!!float 5", 5),
        ("!!binary aGVsbG8=", "hello"),
        ("!custom 5", "5"),
        ("!!python/object/apply:os.system 'x'", "x"),
        ("|\n  a\n  b\n", "a\nb\n"),
    ],
)
def test_scalars(scalar: str, value: Any) -> None:
    found = yaml.decode_value(f"k: {scalar}\n".encode())[0]["k"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("--- \n...\n", None),
        ("a: 1\n---\nb: 2\n", {"a": 1}),
        ("1: a\ntrue: b\n1.5: c\n", {"1": "a", "true": "b", "1.5": "c"}),
        ("a: &x {b: [1]}\nc: *x\n", {"a": {"b": [1]}, "c": {"b": [1]}}),
        ("a: &x {b: 1}\nd: {<<: *x, c: 3}\n", {"a": {"b": 1}, "d": {"b": 1, "c": 3}}),
        (
            "a: &x {b: 1}\ne: &y {b: 2, f: 3}\nd: {<<: [*x, *y]}\n",
            {"a": {"b": 1}, "e": {"b": 2, "f": 3}, "d": {"b": 1, "f": 3}},
        ),
        ('{"a": [1, "x", null]}', {"a": [1, "x", None]}),
    ],
)
def test_documents(text: str, value: Any) -> None:
    assert yaml.decode_value(text.encode()) == (value, [])


def test_an_aliased_value_is_not_shared() -> None:
    value, _ = yaml.decode_value(b"a: &x {b: 1}\nc: *x\n")
    value["a"]["b"] = 2
    assert value["c"] == {"b": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "apiVersion: v1\nkind: ConfigMap\n metadata: {\n",
            "yaml: line 3: mapping values are not allowed in this context",
        ),
        ("a: b: c", "yaml: mapping values are not allowed in this context"),
        ("\t- x", "yaml: found character that cannot start any token"),
        ('"a', "yaml: found unexpected end of stream"),
        ("a: *nope", "yaml: unknown anchor 'nope' referenced"),
        ("a: &x [*x]", "yaml: anchor 'x' value contains itself"),
        ("a: !!int x", "yaml: cannot decode !!str `x` as a !!int"),
        ("a: .inf", "json: unsupported value: +Inf"),
        ("? [a]\n: b", "yaml: invalid map key: a mapping or a list"),
        ("~: x", "unsupported map key of type"),
        ("<<: 5", "yaml: map merge requires map or sequence of maps as the value"),
        ("a: \x01", "yaml: control characters are not allowed"),
        ("[" * 1000, f"yaml: exceeded max depth of {MAX_DEPTH}"),
        ("- " * 100_000, f"yaml: exceeded max depth of {MAX_DEPTH}"),
    ],
)
def test_rejected_documents(text: str, message: str) -> None:
    with pytest.raises(DecodeError) as caught:
        yaml.decode_value(text.encode())
    assert message in str(caught.value)


def test_a_small_document_cannot_grow_large_by_aliases() -> None:
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(DecodeError, match="excessive aliasing"):
        yaml.decode_value("\n".join(lines).encode())


def test_a_chain_of_aliases_cannot_nest_deeper_than_a_document() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, MAX_DEPTH + 10)]
    with pytest.raises(DecodeError, match="max depth"):
        yaml.decode_value("\n".join(lines).encode())


def test_duplicate_keys() -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: a\n  k: b\n"
    value, errors = yaml.decode(body, strict=True)
    assert value["data"] == {"k": "b"}
    assert errors == ['yaml: unmarshal errors:\n  line 7: key "k" already set in map']
    assert yaml.decode(body) == (value, [])
    assert yaml.decode_value(b"a: &x {c: 2}\nd: {<<: *x, c: 3}\n") == (
        {"a": {"c": 2}, "d": {"c": 3}},
        ['line 2: key "c" already set in map'],
    )
    assert yaml.decode_value(b"1: a\n1: b\nl:\n- a\nl:\n- b\n")[1] == [
        "line 2: key 1 already set in map",
        'line 6: key "l" already set in map',
    ]


def test_a_body_must_be_an_object() -> None:
    with pytest.raises(DecodeError, match="couldn't get version/kind; json parse error: json: cannot unmarshal string"):
        yaml.decode(b"just text")
    assert yaml.decode(b"") == ({}, [])


def test_layout() -> None:
    value = {
        "l": [1, {"b": "x\ny\n", "a": "true"}, [1, [2]], [], {}],
        "s": {"colon": "a: b", "empty": "", "hash": "x #y", "dash": "- x", "y": "y", "time": "2020-01-01T00:00:00Z"},
        "n": None,
        "f": 1.5,
        "w": 1e20,
    }
    assert yaml.encode(value).decode() == (
        'f: 1.5\nl:\n- 1\n- a: "true"\n  b: |\n    x\n    y\n- - 1\n  - - 2\n- []\n- {}\n"n": null\ns:\n'
        "  colon: 'a: b'\n  dash: '- x'\n"
        '  empty: ""\n'
        "  hash: 'x #y'\n"
        '  time: "2020-01-01T00:00:00Z"\n  "y": "y"\n'
        "w: 1e+20\n"
    )
    assert yaml.encode({}) == b"{}\n"
    with pytest.raises(EncodeError):
        yaml.encode({"a": float("nan")})


_TRICKY = st.text(st.sampled_from("ab -:#\n\t'\"{}[],&*!|>%@`?~=<.+_01ye\\é\u2028\x85\x00\ufeff😀"), max_size=8)
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | _TRICKY
    | st.sampled_from(["no", "1:30", "---"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TRICKY, inner, max_size=3),
    max_leaves=12,
)


@given(_VALUES)
@settings(max_examples=400, deadline=None)
def test_round_trip(value: Any) -> None:
    assert yaml.decode_value(yaml.encode(value)) == (value, [])


@given(st.text(st.sampled_from("a1 -:#\n\t'\"{}[],&*!|>%@?~<."), max_size=40).map(str.encode) | st.binary(max_size=30))
@settings(max_examples=500, deadline=None)
def test_any_bytes_decode_or_are_rejected(data: bytes) -> None:
    try:
        value, _ = yaml.decode_value(data)
    except DecodeError:
        return
    assert yaml.decode_value(yaml.encode(value))[0] == value


JSON_TEXT = st.text(st.sampled_from('ab":\\ :{}[],\n\u2028é<#~1=&*!|>%@`\x7f\x00/'), max_size=6)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**64), 2**64) | st.floats(allow_nan=False) | JSON_TEXT,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(JSON_TEXT, below, max_size=3),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(JSON_TEXT, JSON_VALUES, max_size=4),
    st.booleans(),
    st.sampled_from([(",", ":"), (", ", ": "), (",", " : "), (",\n", ":")]),
    st.sampled_from([None, 0, 1]),
)
def test_json_reads_the_same_both_ways(
    value: dict[str, Any], ascii_only: bool, separators: tuple[str, str], indent: int | None
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, separators=separators, indent=indent).encode()
    plain = yaml.decode_plain(text)
    if plain is not None:
        assert repr([plain]) == repr(yaml.decode_all(text))


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"a":2}',
        b'{"a":1,"a":"\\u0022:"}',
        b'{"a":1,"a":"\\u003a"}',
        b'{"a" :1,"a" :2}',
        b'{"a"\n:1}',
        b'{"a":9223372036854775808}',
        b'{"a":"\\ud83d\\ude00"}',
        b'{"a":"\\/"}',
        b'{"%b":1}' % (b"k" * 1100),
        b"a: 1",
        b'{"a":1}}',
        '{"a":"é"}'.encode(),
    ],
)
def test_other_documents_are_left_to_libyaml(text: bytes) -> None:
    assert yaml.decode_plain(text) is None


def test_a_large_member_has_the_same_value_each_time() -> None:
    member = {"text": "t" * 2000, "whole": 1.0, "half": 0.5, "number": 1}
    for _ in range(2):
        plain = yaml.decode_plain(json.dumps({"spec": member, "whole": 2.0}).encode())
        assert repr(plain) == repr({"spec": {**member, "whole": 1}, "whole": 2})
        plain = yaml.decode_plain(json.dumps({"spec": {**member, "whole": 1}}).encode())
        assert repr(plain) == repr({"spec": {**member, "whole": 1}})


@pytest.mark.parametrize("member", [{"number": 2**63, "text": "t" * 2000}, {"k" * 200: "t" * 2000}])
def test_a_large_member_that_libyaml_reads_differently_is_never_known(member: dict[str, object]) -> None:
    for _ in range(2):
        assert yaml.decode_plain(json.dumps({"spec": member}).encode()) is None


def test_a_document_too_deep_for_json_is_left_to_the_parser_of_yaml() -> None:
    deep = b'{"a":' * 300 + b"1" + b"}" * 300
    assert yaml.decode_plain(deep) is None
    with pytest.raises(DecodeError, match="exceeded max depth"):
        yaml.decode_value(deep)
