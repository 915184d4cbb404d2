"""Formats of strings, as Go's libraries in kube-openapi judge them."""

from __future__ import annotations

import pytest

from kubechronicle.api.custom.schema.formats import FORMATS

CASES = {
    "bsonobjectid": (["507f1f77bcf86cd799439011"], ["507f1f77bcf86cd79943901", "507f1f77bcf86cd79943901g"]),
    "byte": (["YQ==", "YWJj"], ["", "YQ=", "_-=="]),
    "cidr": (["1.2.3.4/24", "01.2.3.4/024", "::1/128"], ["1.2.3.4/33", "1.2.3.4", "1.2.3.4/+1", "::1/129"]),
    "creditcard": (["4220855426222389", "4220 8554 2622 2389"], ["4220855426213389"]),
    "date": (["2024-02-29", "0000-01-01"], ["2023-02-29", "2024-1-1", "1900-02-29"]),
    "datetime": (
        ["2024-02-29T10:20:30Z", "2024-02-29t10:20:30.5z"],
        ["2024-02-29T24:00:00Z", "2024-02-29T10:20:30", "2024-02-29T10:20:60Z"],
    ),
    "duration": (["1h", "2 weeks", "x 1s", "0", ".5s"], ["1", "", "3 foo", "9" * 20 + "x"]),
    "email": (
        ["a@b", "Ann <a@b>", '"a b"@c', "a@[127.0.0.1]", "g: a@b;", "a@b (c)"],
        ["a", "a..b@c", "a@b,", "g:;", "g: a@b, c@d;", "a@[x]", "=?foo?q?x?= <a@b>", "a@b (x"],
    ),
    "hexcolor": (["#fff", "CCccCC"], ["#ff", "#ff12FG"]),
    "hostname": (["a", "example.com", "ex😀.com", "ä.de"], ["-a", "a_b", "a.b.c1", "1.2", "a" * 64]),
    "ipv4": (["1.2.3.4", "01.2.3.4", "::ffff:1.2.3.4"], ["256.1.1.1", "1.2.3", "::1"]),
    "ipv6": (["::1", "::ffff:1.2.3.4"], ["fe80::1%eth0", "::ffff:01.2.3.4", "1.2.3.4", "1::2::3"]),
    "isbn": (["3836221195", "978-4-87311-368-5", "3 401 01319 X"], ["342321412x", ""]),
    "k8slongname": (["a.b"], ["a..b", "A.b", "a" * 254]),
    "k8sshortname": (["a-b", "a" * 63], ["a-", "a.b", "a" * 64]),
    "mac": (["01:23:45:67:89:ab", "0123.4567.89ab", "0123456789ab"], ["01:23-45:67:89:ab", "01:23:45:67:89"]),
    "rgbcolor": (["rgb(0,31, 255)"], ["rgb(01,31,255)", "rgb(256,1,1)"]),
    "ssn": (["000-00-0000", "123 45 6789"], ["123456789"]),
    "uri": (["http://a/#b", "/abs", "mailto:a@b"], ["rel", "", "http://a:port"]),
    "uuid": (["123E4567e89b12d3a456426614174000"], ["x"]),
    "uuid4": (["123e4567-e89b-42d3-a456-426614174000"], ["123e4567-e89b-42d3-c456-426614174000"]),
}


def test_long_texts_take_linear_time() -> None:
    """Each of these took minutes when a part of the text was read again for each of its characters."""
    assert not FORMATS["duration"]("9" * 1_000_000)
    assert FORMATS["duration"]("1s" * 100_000)
    assert not FORMATS["cidr"]("0" * 1_000_000 + "x")
    assert not FORMATS["email"](" " * 1_000_000)


@pytest.mark.parametrize("name", sorted(CASES))
def test_formats(name: str) -> None:
    right, wrong = CASES[name]
    assert [text for text in right if not FORMATS[name](text)] == []
    assert [text for text in wrong if FORMATS[name](text)] == []
