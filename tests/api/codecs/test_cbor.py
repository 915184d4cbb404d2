"""CBOR bodies: values of JSON there and back, each refusal with kube-apiserver's text, and the budget of parts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubechronicle.api.codecs import budget, cbor, cbor_writer
from kubechronicle.api.codecs.errors import CodecError, DecodeError, EncodeError, RefusedValueError, TooManyPartsError

MARK = "d9d9f7"
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda item: st.lists(item, max_size=4) | st.dictionaries(st.text(), item, max_size=4),
    max_leaves=20,
)  # fmt: skip


def problem(text: str) -> str:
    """Return why the document with these hexadecimal digits is refused."""
    with pytest.raises(DecodeError) as refused:
        cbor.decode_value(bytes.fromhex(text))
    return refused.value.message


@given(VALUES)
def test_values_of_json_survive(value: Any) -> None:
    data = cbor_writer.encode(value)
    assert data.hex().startswith(MARK)
    assert cbor.decode_value(data) == value


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_an_error(data: bytes) -> None:
    try:
        value = cbor.decode_value(data)
    except CodecError:
        return
    cbor_writer.encode(value)


@pytest.mark.parametrize(
    ("value", "item"),
    [
        ({"kind": "Pod"}, "a1446b696e6443506f64"),
        (23, "17"), (24, "1818"), (-1, "20"), (-500, "3901f3"), (2**63 - 1, "1b7fffffffffffffff"),
        (1.5, "f93e00"), (100000.0, "fa47c35000"), (1.1, "fb3ff199999999999a"),
        ([True, False, None], "83f5f4f6"), ("ü", "42c3bc"),
    ],
)  # fmt: skip
def test_items_have_their_shortest_form(value: Any, item: str) -> None:
    assert cbor_writer.encode_item(value).hex() == item


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**64, object()])
def test_values_without_a_form_are_errors(value: Any) -> None:
    with pytest.raises(EncodeError):
        cbor_writer.encode(value)


@pytest.mark.parametrize(
    ("item", "value"),
    [
        ("6161", "a"),  # a text string
        ("5f41614162ff", "ab"), ("7f61616162ff", "ab"), ("9f01ff", [1]), ("bf416101ff", {"a": 1}),
        ("41ff", "\ufffd"),  # bytes that are no text
        ("d5420102", "AQI"), ("d6420102", "AQI="), ("d7420102", "0102"),  # tags 21 to 23: later a text
        ("d6a1416181420102", {"a": ["AQI="]}),
        ("c074323031332d30332d32315432303a30343a30305a", "2013-03-21T20:04:00Z"),
        ("c1fb41d452d9ec200000", "2013-03-21T20:04:00.5Z"),
        ("d9d9f7d9d9f701", 1), ("d8ff01", 1),
        ("f93c00", 1.0),
    ],
)  # fmt: skip
def test_other_forms_of_values_are_read(item: str, value: Any) -> None:
    assert cbor.decode_value(bytes.fromhex(item)) == value


_NOT_ACCEPTED = "cbor: data item of cbor type {} is not accepted by protocol: {}"


@pytest.mark.parametrize(
    ("item", "why"),
    [
        ("", "EOF"),
        ("d9d9f7", "unexpected EOF"), ("42", "unexpected EOF"), ("9affffffff", "unexpected EOF"),
        ("19ff", "unexpected EOF"), ("9f", "unexpected EOF"), ("bf4161", "unexpected EOF"),
        ("0000", "cbor: 1 bytes of extraneous data starting at index 1"),
        ("ff", 'cbor: unexpected "break" code'), ("bf4161ff", 'cbor: unexpected "break" code'),
        ("1c", "cbor: invalid additional information 28 for type positive integer"),
        ("1f", "cbor: invalid additional information 31 for type positive integer"),
        ("5f6161ff", "cbor: wrong element type UTF-8 text string for indefinite-length byte string"),
        ("5f5fffff", "cbor: indefinite-length byte string chunk is not definite-length"),
        ("f805", "cbor: invalid simple value 5 for type primitives"),
        ("f7", _NOT_ACCEPTED.format("primitives", "simple value 23 is not recognized")),
        ("f97e00", _NOT_ACCEPTED.format("primitives", "floating-point NaN")),
        ("f97c00", _NOT_ACCEPTED.format("primitives", "floating-point infinity")),
        ("c24101", _NOT_ACCEPTED.format("tag", "bignum")),
        ("61ff", "cbor: invalid UTF-8 string"),
        ("c001", "cbor: tag number 0 must be followed by text string, got positive integer"),
        ("c14161", "cbor: tag number 1 must be followed by integer or floating-point number, got byte string"),
        ("1bffffffffffffffff", "cbor: cannot unmarshal positive integer into Go value of type int64 "
                               "(18446744073709551615 overflows Go's int64)"),
        ("3bffffffffffffffff", "cbor: cannot unmarshal negative integer into Go value of type int64 "
                               "(-18446744073709551616 overflows Go's int64)"),
        ("a10102", "cbor: cannot unmarshal positive integer into Go value of type string "
                   "(map key is of type positive integer and cannot be used to match struct field name)"),
        ("a2416101416102", 'cbor: found duplicate map key "a" at map element index 1'),
        ("81" * 251 + "00", "cbor: exceeded max nested level 10000"),
        ("d9d9f7" * 300 + "00", "cbor: exceeded max nested level 10000"),
    ],
)  # fmt: skip
def test_refusals_have_their_texts(item: str, why: str) -> None:
    assert problem(item) == why


def test_malformed_bytes_come_before_refused_values() -> None:
    assert problem("82f7ff") == 'cbor: unexpected "break" code'


def test_the_type_is_read_before_refused_values() -> None:
    with pytest.raises(RefusedValueError, match='duplicate map key "a"'):
        cbor.decode(bytes.fromhex("a1446d657461a2416101416102"))
    for text in ("80", "a1446b696e6401", "a2446b696e644161446b696e644161"):
        with pytest.raises(DecodeError, match="unable to determine group/version/kind: ") as refused:
            cbor.decode(bytes.fromhex(text))
        assert not isinstance(refused.value, RefusedValueError)


@pytest.mark.parametrize(
    "data",
    [
        b"\x9a\x00\x05\x57\x31" + b"\x00" * 350_001,
        b"\x9f" + b"\x00" * 350_001 + b"\xff",
        b"\x9a\x00\x04\x93\xe1" + b"\x80" * 300_001,
        b"\x5f" + b"\x40" * 350_001 + b"\xff",
        b"\xbf" + b"\x40\x00" * 150_001 + b"\xff",
    ],
)
def test_parts_are_counted(data: bytes) -> None:
    with pytest.raises(TooManyPartsError):
        cbor.decode_value(data)


def test_dense_documents_weigh_more_than_their_bytes() -> None:
    assert budget.weight(b"\x41a" * 8_000, cbor=True) == budget.PART * 8_000
    assert budget.weight(b"\x59\x40\x00" + b"a" * 16_384, cbor=True) == 16_387


def test_a_watch_and_a_list_are_made_of_encoded_objects() -> None:
    pod = cbor_writer.encode({"kind": "Pod"})
    assert cbor.decode_value(cbor_writer.encode_watch_event("ADDED", pod)) == {
        "type": "ADDED",
        "object": {"kind": "Pod"},
    }
    opening = cbor_writer.list_opening("v1", "PodList", {"resourceVersion": "7"}, 2)
    listed = cbor.decode_value(opening + cbor_writer.encode_item({}) * 2)
    assert listed == {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": [{}, {}]}
