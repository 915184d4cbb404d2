"""URLs, addresses and address ranges in expressions: Kubernetes' documented examples, and edge cases."""

from __future__ import annotations

import pytest

from kubechronicle.api.cel import EvaluationError, base_environment
from kubechronicle.api.cel.library.address_parser import AddressError, parse, parse_range
from kubechronicle.api.cel.library.urls import UrlError, check
from kubechronicle.api.cel.library.urls import parse as parse_url

TRUE = (
    "ip('127.0.0.1').family() == 4",
    "ip('::1').family() == 6",
    "ip('0.0.0.0').isUnspecified() && ip('::').isUnspecified() && !ip('::1').isUnspecified()",
    "ip('127.255.0.1').isLoopback() && ip('::1').isLoopback() && !ip('2001:db8::abcd').isLoopback()",
    "ip('224.0.0.1').isLinkLocalMulticast() && !ip('224.0.1.1').isLinkLocalMulticast()",
    "ip('ff02::1').isLinkLocalMulticast() && ip('ff12::1').isLinkLocalMulticast()",
    "!ip('fd00::1').isLinkLocalMulticast()",
    "ip('169.254.169.254').isLinkLocalUnicast() && ip('fe80::1').isLinkLocalUnicast()",
    "!ip('fd80::1').isLinkLocalUnicast()",
    "ip('192.168.0.1').isGlobalUnicast() && !ip('255.255.255.255').isGlobalUnicast()",
    "ip('2001:db8::abcd').isGlobalUnicast() && !ip('ff00::1').isGlobalUnicast()",
    "isIP('127.0.0.1') && isIP('::1') && !isIP('127.0.0.256') && !isIP(':::1') && !isIP('1.2.3.04')",
    "!isIP('::ffff:1.2.3.4') && !isIP('fe80::1%eth0') && !isIP('')",
    "ip.isCanonical('127.0.0.1') && ip.isCanonical('2001:db8::abcd')",
    "!ip.isCanonical('2001:DB8::ABCD') && !ip.isCanonical('2001:db8::0:0:0:abcd')",
    "ip('2001:db8::0:0:0:abcd') == ip('2001:DB8::ABCD')",
    "string(ip('2001:DB8:0::1')) == '2001:db8::1'",
    "type(ip('::1')) == net.IP && type(cidr('::/0')) == net.CIDR",
    "cidr('192.168.0.0/24').containsIP(ip('192.168.0.1')) && !cidr('192.168.0.0/24').containsIP(ip('192.168.1.1'))",
    "cidr('192.168.0.0/24').containsIP('192.168.0.1') && !cidr('192.168.0.0/24').containsIP('::1')",
    "cidr('192.168.0.0/16').containsCIDR(cidr('192.168.10.0/24'))",
    "cidr('192.168.0.0/16').containsCIDR('192.168.0.0/16') && !cidr('192.168.0.0/16').containsCIDR('192.0.0.0/8')",
    "!cidr('192.168.1.0/24').containsCIDR('192.168.2.0/24')",
    "cidr('192.168.0.1/24').ip() == ip('192.168.0.1') && cidr('::1/128').ip().family() == 6",
    "cidr('192.168.0.0/24') == cidr('192.168.0.0/24').masked()",
    "cidr('192.168.0.1/24') != cidr('192.168.0.1/24').masked()",
    "string(cidr('192.168.0.1/24').masked()) == '192.168.0.0/24'",
    "cidr('192.168.0.0/16').prefixLength() == 16 && cidr('::1/128').prefixLength() == 128",
    "isCIDR('192.168.0.0/16') && isCIDR('::1/128') && !isCIDR('192.168.0.0/33') && !isCIDR('::1/129')",
    "!isCIDR('10.0.0.0') && !isCIDR('10.0.0.0/08') && !isCIDR('fe80::%e/64') && !isCIDR('::ffff:1.2.3.4/96')",
    "url('https://example.com:80/').getHost() == 'example.com:80'",
    "url('https://example.com:80/').getHostname() == 'example.com'",
    "url('https://[::1]:80/').getHostname() == '::1' && url('https://[::1]:80/').getPort() == '80'",
    "url('/path').getHost() == '' && url('/path').getScheme() == ''",
    "url('HTTPS://example.com/').getScheme() == 'https'",
    "url('https://example.com/').getPort() == ''",
    "url('https://example.com/path with spaces/').getEscapedPath() == '/path%20with%20spaces/'",
    "url('https://example.com/a%2fb').getEscapedPath() == '/a%2fb'",
    "url('https://example.com/path?k1=a&k2=b&k2=c').getQuery() == {'k1': ['a'], 'k2': ['b', 'c']}",
    "url('https://example.com/path?key with spaces=value with spaces').getQuery()"
    " == {'key with spaces': ['value with spaces']}",
    "url('https://example.com/path?').getQuery() == {} && url('https://example.com/path').getQuery() == {}",
    "url('https://example.com/?a=1;b=2&c=%zz&d=4').getQuery() == {'d': ['4']}",
    "isURL('https://user:pass@example.com:80/path?query=val#fragment') && isURL('/absolute-path')",
    "!isURL('https://a:b:c/') && !isURL('../relative-path') && !isURL('')",
    "url('https://example.com/a') == url('HTTPS://example.com/a')",
)


@pytest.mark.parametrize("expression", TRUE)
def test_holds(expression: str) -> None:
    assert base_environment().compile(expression).evaluate({}, budget=1000) is True


FAILING = (
    (
        "ip('1.2.3.999')",
        'IP Address "1.2.3.999" parse error during conversion from string: ParseAddr("1.2.3.999"): '
        "IPv4 field has value >255",
    ),
    ("ip('::ffff:1.2.3.4')", 'IPv4-mapped IPv6 address "::ffff:1.2.3.4" is not allowed'),
    ("ip('fe80::1%eth0')", 'IP address "fe80::1%eth0" with zone value is not allowed'),
    (
        "cidr('10.0.0.0')",
        "network address parse error during conversion from string: network address parse error during conversion from "
        "string: netip.ParsePrefix(\"10.0.0.0\"): no '/'",
    ),
    ("cidr('10.0.0.0/8').containsIP('no')", "no such overload"),
    (
        "url('../relative-path')",
        'URL parse error during conversion from string: parse "../relative-path": invalid URI for request',
    ),
    (
        "url('https://a:b:c/')",
        'URL parse error during conversion from string: parse "https://a:b:c/": invalid port ":b:c" after host',
    ),
)


@pytest.mark.parametrize(("expression", "message"), FAILING)
def test_fails(expression: str, message: str) -> None:
    program = base_environment().compile(expression)
    with pytest.raises(EvaluationError) as caught:
        program.evaluate({}, budget=1000)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'ParseAddr(""): unable to parse IP'),
        ("%eth0", 'ParseAddr("%eth0"): missing IPv6 address'),
        ("1.2.3", 'ParseAddr("1.2.3"): IPv4 address too short'),
        ("1.2.3.4.5", 'ParseAddr("1.2.3.4.5"): IPv4 address too long'),
        ("1..2.3", 'ParseAddr("1..2.3"): IPv4 field must have at least one digit (at ".2.3")'),
        ("1.2.3.x", 'ParseAddr("1.2.3.x"): unexpected character (at "x")'),
        ("fe80::%", 'ParseAddr("fe80::%"): zone must be a non-empty string'),
        ("12345::", 'ParseAddr("12345::"): each group must have 4 or less digits (at "12345::")'),
        ("1:2", 'ParseAddr("1:2"): address string too short'),
        ("1::2::3", 'ParseAddr("1::2::3"): multiple :: in address (at ":3")'),
        ("1:2:3:4:5:6:7:8:9", 'ParseAddr("1:2:3:4:5:6:7:8:9"): trailing garbage after address (at "9")'),
        (
            "1:2:3:4:5:6:7::8",
            'ParseAddr("1:2:3:4:5:6:7::8"): the :: must expand to at least one field of zeros',
        ),
        ("1:", 'ParseAddr("1:"): colon must be followed by more characters (at ":")'),
        ("::g", 'ParseAddr("::g"): each colon-separated field must have at least one digit (at "g")'),
    ],
)
def test_errors_of_addresses(text: str, message: str) -> None:
    with pytest.raises(AddressError) as caught:
        parse(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1.2.3.4/", 'bad bits after slash: ""'),
        ("1.2.3.4/+1", 'bad bits after slash: "+1"'),
        ("1.2.3.4/33", "prefix length out of range"),
        ("fe80::1%a/64", "IPv6 zones cannot be present in a prefix"),
    ],
)
def test_errors_of_ranges(text: str, message: str) -> None:
    with pytest.raises(AddressError) as caught:
        parse_range(text)
    assert str(caught.value).endswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("http://a b/", 'parse "http://a b/": invalid character " " in host name'),
        ("http://a/%zz", 'parse "http://a/%zz": invalid URL escape "%zz"'),
        ("http://[::1", "parse \"http://[::1\": missing ']' in host"),
        ("http://[1.2.3.4]/", 'parse "http://[1.2.3.4]/": invalid IP-literal'),
        ("http://a:x/", 'parse "http://a:x/": invalid port ":x" after host'),
        (":a", 'parse ":a": missing protocol scheme'),
        ("http://a\n", 'parse "http://a\\n": net/url: invalid control character in URL'),
        ("", 'parse "": empty url'),
    ],
)
def test_errors_of_urls(text: str, message: str) -> None:
    with pytest.raises(UrlError) as caught:
        check(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "text",
    [
        "https://user:pa%20ss@[::1]:443/p?q=a+b",
        "mailto:a@b.example",
        "http://ex%C3%A4mple.example/%C3%BC?x#fr%20ag",
        "/path//a/b?",
        "ftp://h1:1,h2:2/",
        "http:/no-host",
        "https://h?",
    ],
)
def test_the_text_of_a_url_round_trips(text: str) -> None:
    assert str(parse_url(text)) == text
