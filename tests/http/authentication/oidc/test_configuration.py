"""The AuthenticationConfiguration file: decoding, validation and error texts.

Long because of one table of invalid fields with their errors.
"""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import yaml
from certificates import CA

from kubechronicle.api.configuration.files import ConfigFileError
from kubechronicle.http.authentication.oidc import configuration
from kubechronicle.http.authentication.oidc.authenticator import check_peers
from kubechronicle.http.authentication.oidc.configuration import (
    AnonymousAuthCondition,
    AnonymousAuthConfig,
    ClaimOrExpression,
    ClaimValidationRule,
    PrefixedClaimOrExpression,
    of_flags,
    parse,
)
from kubechronicle.http.authentication.oidc.validation import Invalid, compile_configuration

GROUP = "apiserver.config.k8s.io"
HEAD = f"apiVersion: {GROUP}/v1\nkind: AuthenticationConfiguration\n"
JWT: dict[str, Any] = {
    "issuer": {"url": "https://issuer-url", "audiences": ["audience"]},
    "claimValidationRules": [{"claim": "foo", "requiredValue": "bar"}],
    "claimMappings": {"username": {"claim": "sub", "prefix": "prefix"}},
}
EVERYTHING = f"""
apiVersion: {GROUP}/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: https://example.com
    discoveryURL: https://discovery.example.com/.well-known/openid-configuration
    audiences: [my-app, my-other-app]
    audienceMatchPolicy: MatchAny
  claimValidationRules:
  - expression: 'claims.hd == "example.com"'
    message: the hosted domain name must be example.com
  - claim: tenant
    requiredValue: blue
  claimMappings:
    username:
      expression: 'claims.username + ":external-user"'
    groups:
      claim: roles
      prefix: "oidc:"
    uid:
      claim: sub
    extra:
    - key: example.com/tenant
      valueExpression: claims.tenant
  userValidationRules:
  - expression: "!user.username.startsWith('system:')"
    message: reserved
anonymous:
  enabled: true
  conditions:
  - path: /livez
  - path: /readyz
"""


def file_of(*jwt: dict[str, Any], **fields: Any) -> bytes:
    document = {"apiVersion": f"{GROUP}/v1", "kind": "AuthenticationConfiguration", "jwt": list(jwt), **fields}
    return yaml.safe_dump(document).encode()


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return JWT with one field changed, such as ``issuer.url``; the value ``...`` removes it."""
    jwt: Any = copy.deepcopy(JWT)
    *parents, last = path.split(".")
    parent = jwt
    for name in parents:
        parent = parent.setdefault(name, {})
    if value is ...:
        del parent[last]
    else:
        parent[last] = value
    return dict(jwt)


def test_an_egress_selection_depends_on_a_gate() -> None:
    data = file_of(changed("issuer.egressSelectorType", "cluster"))
    assert errors_of(data) == ""
    assert errors_of(data, selects_egress=False) == (
        'jwt[0].issuer.egressSelectorType: Invalid value: "cluster": egress selector is not supported when '
        "StructuredAuthenticationConfigurationEgressSelector feature gate is disabled"
    )


def errors_of(data: bytes, **options: Any) -> str:
    """Return the errors of a file, "" for none."""
    try:
        compile_configuration(parse(data), **options)
    except Invalid as invalid:
        return str(invalid)
    return ""


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
def test_all_fields_of_all_versions(version: str) -> None:
    config = parse(EVERYTHING.replace(f"{GROUP}/v1", f"{GROUP}/{version}").encode())
    (jwt,) = config.jwt
    assert jwt.issuer.url == "https://example.com"
    assert jwt.issuer.discovery_url == "https://discovery.example.com/.well-known/openid-configuration"
    assert (jwt.issuer.audiences, jwt.issuer.audience_match_policy) == (("my-app", "my-other-app"), "MatchAny")
    mappings = jwt.claim_mappings
    assert mappings.username == PrefixedClaimOrExpression(expression='claims.username + ":external-user"')
    assert mappings.groups == PrefixedClaimOrExpression(claim="roles", prefix="oidc:")
    assert mappings.uid == ClaimOrExpression(claim="sub")
    assert [rule.claim or rule.expression for rule in jwt.claim_validation_rules] == [
        'claims.hd == "example.com"',
        "tenant",
    ]
    assert [(each.key, each.value_expression) for each in mappings.extra] == [("example.com/tenant", "claims.tenant")]
    assert jwt.user_validation_rules[0].message == "reserved"
    conditions = (AnonymousAuthCondition(path="/livez"), AnonymousAuthCondition(path="/readyz"))
    assert config.anonymous == AnonymousAuthConfig(enabled=True, conditions=conditions)
    assert config.anonymous.paths == ("/livez", "/readyz")
    (mapper,) = compile_configuration(config)
    assert mapper.required == (("tenant", "blue"),)


def test_a_file_may_be_json_or_empty() -> None:
    empty = configuration.AuthenticationConfiguration()
    text = f'{{"apiVersion":"{GROUP}/v1","kind":"AuthenticationConfiguration","jwt":null}}'
    assert parse(text.encode()) == parse(HEAD.encode()) == parse((HEAD + "jwt: []\n").encode()) == empty
    assert compile_configuration(empty) == ()
    assert parse((HEAD + "anonymous: {}\n").encode()).anonymous == AnonymousAuthConfig(enabled=False)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty config data"),
        ("a: [", "yaml: "),
        ("- a", "couldn't get version/kind; json parse error"),
        ("jwt: []", "Object 'Kind' is missing"),
        ("kind: AuthenticationConfiguration", "Object 'apiVersion' is missing"),
        (HEAD.replace("/v1", "/v2"), 'no kind "AuthenticationConfiguration" is registered for version "apiserver.con'),
        (HEAD.replace(f"{GROUP}/", ""), 'no kind "AuthenticationConfiguration" is registered for version "v1"'),
        (HEAD.replace("Authentication", "Foo"), 'no kind "FooConfiguration" is registered'),
        (HEAD.replace("Authentication", "Authorization"), "expected AuthenticationConfiguration, got"),
        (HEAD + "foo: bar", 'strict decoding error: unknown field "foo"'),
        (HEAD + "JWT: []", 'unknown field "JWT"'),
        (HEAD + "jwt: [{issuer: {uri: x}}]", 'unknown field "jwt[0].issuer.uri"'),
        (HEAD + "jwt: [{}, {claimMappings: {username: {name: x}}}]", 'unknown field "jwt[1].claimMappings.username.na'),
        (HEAD + "jwt: [{claimMappings: {uid: {prefix: x}}}]", 'unknown field "jwt[0].claimMappings.uid.prefix"'),
        (HEAD + "jwt: [{claimMappings: {extra: [{claim: x}]}}]", 'unknown field "jwt[0].claimMappings.extra[0].claim"'),
        (HEAD + "anonymous: {conditions: [{paths: x}]}", 'unknown field "anonymous.conditions[0].paths"'),
        (HEAD + "jwt: []\njwt: []", 'key "jwt" already set in map'),
        (HEAD + "jwt: [{issuer: {url: a, url: b}}]", 'key "url" already set in map'),
        (HEAD + "jwt: 5", "json: cannot unmarshal number into Go struct field AuthenticationConfiguration.jwt"),
        (HEAD + "jwt: {}", "cannot unmarshal object into Go struct field AuthenticationConfiguration.jwt"),
        (HEAD + "jwt: [x]", "cannot unmarshal string into Go struct field"),
        (HEAD + "jwt: [{issuer: {url: 5}}]", "cannot unmarshal number into Go struct field Issuer.jwt.issuer.url"),
        (HEAD + "jwt: [{issuer: {audiences: aud}}]", "cannot unmarshal string into Go struct field"),
        (HEAD + "anonymous: {enabled: 'yes'}", "cannot unmarshal string into Go struct field"),
        ('{"apiVersion":', "json parse error"),
        (f'{{"apiVersion":"{GROUP}/v1","kind":"AuthenticationConfiguration","jwt":[],"jwt":[]}}', "duplicate field"),
    ],
)
def test_invalid_files(text: str, why: str) -> None:
    with pytest.raises(ConfigFileError) as caught:
        parse(text.encode())
    assert why in str(caught.value)


_PREFIX_NEEDED = "prefix is required when claim is set. It can be set to an empty string to disable prefixing"
_SAME = "discoveryURL must be different from URL"
_KEY = "~claimMappings.extra[0].key"
_RESERVED = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use"
_PORT = 'parse "https://issuer-url:invalid-port": invalid port ":invalid-port" after host'
_NO_CERTIFICATE = "data does not contain any valid RSA or ECDSA certificates"


def _extra(*keys: str, expression: str = "claims.x") -> list[dict[str, str]]:
    return [{"key": key, "valueExpression": expression} for key in keys]


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("issuer.url", "", "~issuer.url: Required value"),
        ("issuer.url", ..., "~issuer.url: Required value"),
        ("issuer.url", "invalid-url", '~issuer.url: Invalid value: "invalid-url": URL scheme must be https'),
        (
            "issuer.url",
            "http://issuer-url",
            '~issuer.url: Invalid value: "http://issuer-url": URL scheme must be https',
        ),
        (
            "issuer.url",
            "https://issuer-url:invalid-port",
            f'~issuer.url: Invalid value: "https://issuer-url:invalid-port": {_PORT}',
        ),
        (
            "issuer.url",
            "https://user:pass@issuer-url",
            '~issuer.url: Invalid value: "https://user:pass@issuer-url": URL must not contain a username or password',
        ),
        (
            "issuer.url",
            "https://issuer-url?query",
            '~issuer.url: Invalid value: "https://issuer-url?query": URL must not contain a query',
        ),
        (
            "issuer.url",
            "https://issuer-url#fragment",
            '~issuer.url: Invalid value: "https://issuer-url#fragment": URL must not contain a fragment',
        ),
        (
            "issuer.url",
            "http://u@h?q#f",
            "["
            + ", ".join(
                f'~issuer.url: Invalid value: "http://u@h?q#f": URL {why}'
                for why in (
                    "scheme must be https",
                    "must not contain a username or password",
                    "must not contain a query",
                    "must not contain a fragment",
                )
            )
            + "]",
        ),
        ("issuer.discoveryURL", "https://discovery", ""),
        ("issuer.discoveryURL", "https://discovery/path", ""),
        (
            "issuer.discoveryURL",
            "http://discovery",
            '~issuer.discoveryURL: Invalid value: "http://discovery": URL scheme must be https',
        ),
        (
            "issuer.discoveryURL",
            "https://issuer-url",
            f'~issuer.discoveryURL: Invalid value: "https://issuer-url": {_SAME}',
        ),
        (
            "issuer.discoveryURL",
            "https://issuer-url///",
            f'~issuer.discoveryURL: Invalid value: "https://issuer-url///": {_SAME}',
        ),
        (
            "issuer.discoveryURL",
            "https://discovery?q",
            '~issuer.discoveryURL: Invalid value: "https://discovery?q": URL must not contain a query',
        ),
        ("issuer.audiences", [], "~issuer.audiences: Required value: at least one ~issuer.audiences is required"),
        ("issuer.audiences", ..., "~issuer.audiences: Required value: at least one ~issuer.audiences is required"),
        ("issuer.audiences", [""], "~issuer.audiences[0]: Required value"),
        (
            "issuer.audiences",
            ["a", "b"],
            '~issuer.audienceMatchPolicy: Invalid value: "": audienceMatchPolicy must be MatchAny for multiple '
            "audiences",
        ),
        ("issuer.audienceMatchPolicy", "MatchAny", ""),
        (
            "issuer.audienceMatchPolicy",
            "MatchExact",
            '~issuer.audienceMatchPolicy: Invalid value: "MatchExact": audienceMatchPolicy must be empty or MatchAny '
            "for single audience",
        ),
        ("issuer.certificateAuthority", "", ""),
        (
            "issuer.certificateAuthority",
            "invalid",
            f'~issuer.certificateAuthority: Invalid value: "<omitted>": {_NO_CERTIFICATE}',
        ),
        ("issuer.certificateAuthority", CA("issuer's").pem.decode(), ""),
        ("issuer.certificateAuthority", "# why\n" + CA("one").pem.decode() + CA("two").pem.decode(), ""),
        ("issuer.egressSelectorType", "cluster", ""),
        ("issuer.egressSelectorType", "controlplane", ""),
        (
            "issuer.egressSelectorType",
            "panda",
            '~issuer.egressSelectorType: Invalid value: "panda": egress selector must be either controlplane or '
            "cluster",
        ),
        ("claimValidationRules", [], ""),
        ("claimValidationRules", [{}], "~claimValidationRules[0]: Required value: claim or expression is required"),
        (
            "claimValidationRules",
            [{"claim": "claim", "expression": "true"}],
            '~claimValidationRules[0]: Invalid value: "claim": claim and expression can\'t both be set',
        ),
        (
            "claimValidationRules",
            [{"claim": "claim", "message": "message"}],
            '~claimValidationRules[0].message: Invalid value: "message": may not be specified when claim is set',
        ),
        (
            "claimValidationRules",
            [{"expression": "claims.a == 'b'", "requiredValue": "value"}],
            '~claimValidationRules[0].requiredValue: Invalid value: "value": may not be specified when expression is '
            "set",
        ),
        (
            "claimValidationRules",
            [{"claim": "c", "requiredValue": "a"}, {"claim": "c", "requiredValue": "b"}],
            '~claimValidationRules[1].claim: Duplicate value: "c"',
        ),
        (
            "claimValidationRules",
            [{"expression": "claims.a == 'b'"}, {"expression": "claims.a == 'b'"}],
            "~claimValidationRules[1].expression: Duplicate value: \"claims.a == 'b'\"",
        ),
        (
            "claimValidationRules",
            [{"expression": "claims.foo"}],
            '~claimValidationRules[0].expression: Invalid value: "claims.foo": must evaluate to bool',
        ),
        (
            "claimValidationRules",
            [{"expression": "claims.?email_verified.orValue(true)"}],
            '~claimValidationRules[0].expression: Invalid value: "claims.?email_verified.orValue(true)": must '
            "evaluate to bool",
        ),
        (
            "claimValidationRules",
            [{"expression": "'text'"}],
            "~claimValidationRules[0].expression: Invalid value: \"'text'\": must evaluate to bool",
        ),
        (
            "claimValidationRules",
            [{"expression": "foo.bar"}],
            '~claimValidationRules[0].expression: Invalid value: "foo.bar": compilation failed: ERROR: <input>:1:1: '
            "undeclared reference to 'foo' (in container '')\n | foo.bar\n | ^",
        ),
        (
            "claimValidationRules",
            [{"expression": "user.username == 'a'"}],
            "~claimValidationRules[0].expression: Invalid value: \"user.username == 'a'\": compilation failed: ERROR: "
            "<input>:1:1: undeclared reference to 'user' (in container '')\n | user.username == 'a'\n | ^",
        ),
        ("claimMappings.username", {}, "~claimMappings.username: Required value: claim or expression is required"),
        ("claimMappings.username", ..., "~claimMappings.username: Required value: claim or expression is required"),
        (
            "claimMappings.username",
            {"prefix": "p"},
            "~claimMappings.username: Required value: claim or expression is required",
        ),
        (
            "claimMappings.username",
            {"claim": "sub"},
            f"~claimMappings.username.prefix: Required value: {_PREFIX_NEEDED}",
        ),
        ("claimMappings.username", {"claim": "sub", "prefix": ""}, ""),
        (
            "claimMappings.username",
            {"claim": "sub", "prefix": None},
            f"~claimMappings.username.prefix: Required value: {_PREFIX_NEEDED}",
        ),
        (
            "claimMappings.username",
            {"claim": "sub", "expression": "claims.sub"},
            '~claimMappings.username: Invalid value: "": claim and expression can\'t both be set',
        ),
        (
            "claimMappings.username",
            {"prefix": "p", "expression": "claims.sub"},
            '~claimMappings.username.prefix: Invalid value: "p": may not be specified when expression is set',
        ),
        (
            "claimMappings.username",
            {"expression": "foo.bar"},
            '~claimMappings.username.expression: Invalid value: "foo.bar": compilation failed: ERROR: <input>:1:1: '
            "undeclared reference to 'foo' (in container '')\n | foo.bar\n | ^",
        ),
        ("claimMappings.groups", {}, ""),
        ("claimMappings.groups", {"claim": "g"}, f"~claimMappings.groups.prefix: Required value: {_PREFIX_NEEDED}"),
        ("claimMappings.groups", {"claim": "g", "prefix": ""}, ""),
        (
            "claimMappings.groups",
            {"claim": "g", "expression": "claims.g"},
            '~claimMappings.groups: Invalid value: "": claim and expression can\'t both be set',
        ),
        (
            "claimMappings.groups",
            {"prefix": "p", "expression": "claims.g"},
            '~claimMappings.groups.prefix: Invalid value: "p": may not be specified when expression is set',
        ),
        ("claimMappings.uid", {}, ""),
        ("claimMappings.uid", {"claim": "u"}, ""),
        (
            "claimMappings.uid",
            {"claim": "u", "expression": "claims.u"},
            '~claimMappings.uid: Invalid value: "": claim and expression can\'t both be set',
        ),
        (
            "claimMappings.uid",
            {"expression": "foo.bar"},
            '~claimMappings.uid.expression: Invalid value: "foo.bar": compilation failed: ERROR: <input>:1:1: '
            "undeclared reference to 'foo' (in container '')\n | foo.bar\n | ^",
        ),
        ("claimMappings.extra", _extra(""), f"{_KEY}: Required value"),
        ("claimMappings.extra", _extra("example.org/foo", "example.org/bar"), ""),
        (
            "claimMappings.extra",
            _extra("foo"),
            f'{_KEY}: Invalid value: "foo": must be a domain-prefixed path (such as "acme.io/foo")',
        ),
        (
            "claimMappings.extra",
            _extra("example.org/"),
            f'{_KEY}: Invalid value: "example.org/": must be a domain-prefixed path (such as "acme.io/foo")',
        ),
        (
            "claimMappings.extra",
            _extra("example.org/Foo"),
            f'{_KEY}: Invalid value: "example.org/Foo": must be lowercase',
        ),
        (
            "claimMappings.extra",
            _extra("example.org/a b"),
            f'{_KEY}: Invalid value: "a b": Invalid path (regex used for validation is '
            "'[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')",
        ),
        ("claimMappings.extra", _extra("k8s.io/foo"), f'{_KEY}: Invalid value: "k8s.io/foo": {_RESERVED}'),
        ("claimMappings.extra", _extra("a.k8s.io/foo"), f'{_KEY}: Invalid value: "a.k8s.io/foo": {_RESERVED}'),
        (
            "claimMappings.extra",
            _extra("kubernetes.io/foo"),
            f'{_KEY}: Invalid value: "kubernetes.io/foo": {_RESERVED}',
        ),
        (
            "claimMappings.extra",
            _extra("a.kubernetes.io/f"),
            f'{_KEY}: Invalid value: "a.kubernetes.io/f": {_RESERVED}',
        ),
        ("claimMappings.extra", _extra("ak8s.io/foo", "a.ak8s.io/foo", "bkubernetes.io/foo", "b.bkubernetes.io/f"), ""),
        (
            "claimMappings.extra",
            _extra("example.org/foo", "example.org/foo"),
            '~claimMappings.extra[1].key: Duplicate value: "example.org/foo"',
        ),
        (
            "claimMappings.extra",
            _extra("example.org/foo", expression=""),
            "~claimMappings.extra[0].valueExpression: Required value",
        ),
        (
            "claimMappings.extra",
            _extra("example.org/foo", expression="foo.bar"),
            '~claimMappings.extra[0].valueExpression: Invalid value: "foo.bar": compilation failed: ERROR: '
            "<input>:1:1: undeclared reference to 'foo' (in container '')\n | foo.bar\n | ^",
        ),
        ("userValidationRules", [{"expression": ""}], "~userValidationRules[0].expression: Required value"),
        ("userValidationRules", [{"expression": "user.username == 'a'", "message": "m"}], ""),
        (
            "userValidationRules",
            [{"expression": "user.username == 'a'"}] * 2,
            "~userValidationRules[1].expression: Duplicate value: \"user.username == 'a'\"",
        ),
        (
            "userValidationRules",
            [{"expression": "user.username"}],
            '~userValidationRules[0].expression: Invalid value: "user.username": must evaluate to bool',
        ),
        (
            "userValidationRules",
            [{"expression": "claims.sub == 'a'"}],
            "~userValidationRules[0].expression: Invalid value: \"claims.sub == 'a'\": compilation failed: ERROR: "
            "<input>:1:1: undeclared reference to 'claims' (in container '')\n | claims.sub == 'a'\n | ^",
        ),
    ],
)
def test_one_field(path: str, value: Any, expected: str) -> None:
    """~ in ``expected`` stands for the path of the first issuer."""
    assert errors_of(file_of(changed(path, value))) == re.sub(r"(?<!_)~", "jwt[0].", expected)


def test_an_undefined_field() -> None:
    errors = errors_of(file_of(changed("userValidationRules", [{"expression": "user.unknown == 'a'"}])))
    assert "compilation failed: ERROR: <input>:1:5: undefined field 'unknown'" in errors


_UNVERIFIED = (
    "claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression "
    "or claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression"
)


@pytest.mark.parametrize(
    ("username", "rule", "extra", "sound"),
    [
        ("claims.email", "", "", False),
        ("claims.email_", "", "", True),
        ("claims.other.claims.email", "", "", True),
        ("['yay', string(claims.email), 'panda'].join(' ')", "", "", False),
        ("claims.?email", "", "", False),
        ('{claims.?email: "panda"}', "", "", False),
        ('{"fancy": claims.?email}', "", "", False),
        ('["a"].map(i, i + claims.email)', "", "", False),
        ("has(claims.email) ? claims.email : claims.sub", "", "", False),
        ("claims.email.trim()", "", "", False),
        ("claims.email", "claims.email_verified == true", "", True),
        ("claims.email", 'string(claims.email_verified) == "panda"', "", True),
        ("claims.email", "claims.?email_verified.orValue(true) == true", "", True),
        ("claims.email", "claims.?email_verified_.orValue(true) == true", "", False),
        ("claims.email", "", "claims.email_verified", True),
        ("claims.email", "", "claims.?email_verified", True),
        ("claims.email", "", "claims.email_verified.upperAscii()", True),
        ("claims.email", "", "has(claims.email_verified) ? string(claims.email_verified) : 'false'", True),
        ("claims.email", "", "has(claims.email_verified_) ? string(claims.email_verified_) : 'false'", False),
        ("claims.?email_verified.orValue(true) ? claims.email : claims.sub", "", "", True),
        ("claims.email_verified ? claims.email : claims.sub", "", "", True),
    ],
)
def test_the_email_claim_requires_a_check_of_email_verified(username: str, rule: str, extra: str, sound: bool) -> None:
    jwt = changed("claimMappings.username", {"expression": username})
    if rule:
        jwt["claimValidationRules"] = [{"expression": rule}]
    if extra:
        jwt["claimMappings"]["extra"] = _extra("panda.io/foo", expression=extra)
    quoted = username.replace('"', '\\"')
    wanted = f'jwt[0].claimMappings.username.expression: Invalid value: "{quoted}": {_UNVERIFIED}'
    assert errors_of(file_of(jwt)) == ("" if sound else wanted)


def test_duplicates_among_issuers() -> None:
    assert errors_of(file_of(JWT, JWT)) == 'jwt[1].issuer.url: Duplicate value: "https://issuer-url"'
    one = changed("issuer.discoveryURL", "https://discovery")
    other = copy.deepcopy(one)
    other["issuer"]["url"] = "https://different-issuer-url"
    assert errors_of(file_of(one, other)) == 'jwt[1].issuer.discoveryURL: Duplicate value: "https://discovery"'


def test_no_more_than_64_issuers() -> None:
    def issuers(number: int) -> list[dict[str, Any]]:
        return [changed("issuer.url", f"https://issuer-{position}") for position in range(number)]

    assert errors_of(file_of(*issuers(64))) == ""
    assert errors_of(file_of(*issuers(65))) == "jwt: Too many: 65: must have at most 64 items"


def test_no_issuer_may_be_this_server() -> None:
    errors = errors_of(file_of(JWT), disallowed=("c", "https://issuer-url", "a"))
    overlap = "URL must not overlap with disallowed issuers: [a c https://issuer-url]"
    assert errors == f'jwt[0].issuer.url: Invalid value: "https://issuer-url": {overlap}'
    discovery = changed("issuer.discoveryURL", "https://a")
    assert errors_of(file_of(discovery), disallowed=("https://a",)) == ""


def test_anonymous_requests() -> None:
    condition = {"conditions": [{"path": "/livez"}]}
    assert errors_of(file_of(anonymous={"enabled": True, **condition})) == ""
    assert errors_of(file_of(anonymous={"enabled": False})) == ""
    errors = errors_of(file_of(anonymous={"enabled": False, **condition}))
    assert errors.startswith("anonymous.conditions: Invalid value: [")
    assert errors.endswith(": enabled should be set to true when conditions are defined")
    options: dict[str, Any] = {"anonymous": None}
    assert errors_of(file_of(anonymous={"enabled": False}), **options) == (
        "anonymous: Forbidden: changed from initial configuration file"
    )
    assert errors_of(file_of(anonymous={"enabled": False}), anonymous=AnonymousAuthConfig(enabled=False)) == ""


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        ("issuer.egressSelectorType", "cluster", 'oidc: egress lookup required with egress selector type "cluster"'),
        ("issuer.url", "https:///nowhere", "and name a host"),
        ("issuer.url", "https:opaque", "and name a host"),
    ],
)
def test_valid_configurations_that_are_not_supported(path: str, value: str, why: str) -> None:
    mappers = compile_configuration(parse(file_of(changed(path, value))))
    with pytest.raises(ValueError, match=why):
        check_peers(mappers)


def _flags(**flags: Any) -> configuration.JWTAuthenticator:
    return of_flags(**{"issuer_url": "https://i", "client_id": "c", **flags}).jwt[0]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, PrefixedClaimOrExpression(claim="sub", prefix="https://i#")),
        ({"username_claim": "name"}, PrefixedClaimOrExpression(claim="name", prefix="https://i#")),
        ({"username_claim": "email"}, PrefixedClaimOrExpression(claim="email", prefix="")),
        ({"username_prefix": "-"}, PrefixedClaimOrExpression(claim="sub", prefix="")),
        ({"username_prefix": "oidc:"}, PrefixedClaimOrExpression(claim="sub", prefix="oidc:")),
        ({"username_claim": "email", "username_prefix": "-"}, PrefixedClaimOrExpression(claim="email", prefix="")),
        ({"username_claim": "email", "username_prefix": "p"}, PrefixedClaimOrExpression(claim="email", prefix="p")),
    ],
)
def test_the_prefix_of_user_names_by_flags(flags: dict[str, str], expected: PrefixedClaimOrExpression) -> None:
    assert _flags(**flags).claim_mappings.username == expected


def test_other_flags() -> None:
    plain = _flags()
    assert (plain.claim_mappings.groups, plain.claim_validation_rules, plain.issuer.audiences) == (
        PrefixedClaimOrExpression(),
        (),
        ("c",),
    )
    assert _flags(groups_claim="g").claim_mappings.groups == PrefixedClaimOrExpression(claim="g", prefix="")
    assert _flags(groups_claim="g", groups_prefix="p:").claim_mappings.groups == PrefixedClaimOrExpression(
        claim="g", prefix="p:"
    )
    assert _flags(required_claims={"hd": "x", "k": ""}).claim_validation_rules == (
        ClaimValidationRule(claim="hd", required_value="x"),
        ClaimValidationRule(claim="k"),
    )
