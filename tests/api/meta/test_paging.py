"""Continue tokens: their round trip, and the errors of tokens that this server did not make."""

import base64
import json
from typing import Any

import pytest

from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.list_options import INCONSISTENT, VERSION, Continue, decode_continue, encode_continue


def token(content: Any) -> str:
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def made(**fields: Any) -> str:
    return token({"v": VERSION, "rv": 7, "start": "a/b\0"} | fields)


@pytest.mark.parametrize("after", [("", "n"), ("ns", "n"), ("ns", "n:m")])
def test_tokens_of_this_server(after: tuple[str, str]) -> None:
    made = Continue(12, after)
    assert decode_continue(encode_continue(made), namespaced=bool(after[0])) == made


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (made(rv=-5), Continue(INCONSISTENT, ("a", "b"))),
        (made(start="/a/b\0"), Continue(7, ("a", "b"))),
        (made(start="a\0"), Continue(7, ("a", ""))),
        (made(start="a/b\0c"), Continue(7, ("a", "b"))),
        (made(start="/"), Continue(7, ("", ""))),
        (made(other=[1]), Continue(7, ("a", "b"))),
        (token({"V": VERSION, "RV": 7, "Start": "a/b\0"}), Continue(7, ("a", "b"))),
        (token(b'{"v":"meta.k8s.io/v1","rv":7,"start":"a/\\ud800\\u0000"}'), Continue(7, ("a", "\ufffd"))),
        (token(b'{"v":"meta.k8s.io/v1","rv":7,"start":"a/\xff\\u0000"}'), Continue(7, ("a", "\ufffd"))),
        (made()[:10] + "\r\n" + made()[10:], Continue(7, ("a", "b"))),
    ],
)
def test_tokens_of_others(text: str, expected: Continue) -> None:
    assert decode_continue(text, namespaced=True) == expected


@pytest.mark.parametrize("name", ["a", "b", "a-b", "a.b", "x1", "\x01", "\ue000", "\x7f"])
def test_a_key_without_nul_is_that_of_the_first_object(name: str) -> None:
    _, (namespace, after) = decode_continue(made(start=f"n/{name}"), namespaced=True)
    assert namespace == "n"
    assert after < name
    for earlier in ("", "a", "a-", "a-a", "a-b", "a.", "a.a~", "x", "x0z", "\U0010fffe"):
        assert earlier >= name or earlier <= after
    after.encode()


def test_a_key_without_a_name_begins_with_the_namespace() -> None:
    assert decode_continue(made(start="n"), namespaced=True).after == ("n", "")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a", "illegal base64 data at input byte 0"),
        ("ab=", "illegal base64 data at input byte 2"),
        ("+/", "illegal base64 data at input byte 0"),
        ("abcd\nabcde", "illegal base64 data at input byte 9"),
        ("²", "illegal base64 data at input byte 0"),
        ("abc\0", "illegal base64 data at input byte 3"),
        ("\ud800", "illegal base64 data at input byte 0"),
        (token(b"\xff"), "invalid character 'ÿ' looking for beginning of value"),
        (token(b"{"), "unexpected end of JSON input"),
        (token([]), "json: cannot unmarshal array into Go value of type storage.continueToken"),
        (token(None), "server does not recognize this encoded version "),
        (made(v="v2"), "server does not recognize this encoded version v2"),
        (made(v=1), "json: cannot unmarshal number into Go struct field continueToken.v of type string"),
        (made(rv=0), "incorrect encoded start resourceVersion (version meta.k8s.io/v1)"),
        (made(rv=None, start=None), "incorrect encoded start resourceVersion (version meta.k8s.io/v1)"),
        (made(rv=1.5), "json: cannot unmarshal number 1.5 into Go struct field continueToken.rv of type int64"),
        (made(rv=True), "json: cannot unmarshal bool into Go struct field continueToken.rv of type int64"),
        (made(start=""), "encoded start key empty (version meta.k8s.io/v1)"),
        (made(start="../a"), "../a"),
        (made(start="a//b"), "a//b"),
    ],
)
def test_tokens_that_are_refused(text: str, why: str) -> None:
    with pytest.raises(StatusError) as caught:
        decode_continue(text, namespaced=True)
    assert caught.value.code == 400
    assert caught.value.message == f"invalid continue token: continue key is not valid: {why}"
