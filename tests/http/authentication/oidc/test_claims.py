"""Mapping of claims to users: each case as in kube-apiserver, with its text in the log.

Long because of its tables of cases.
"""

from __future__ import annotations

from typing import Any

import pytest
from openid_server import authenticator

from kubechronicle.http.authentication.oidc import expressions
from kubechronicle.http.authentication.oidc.claims import CREDENTIAL_ID, TokenRejected
from kubechronicle.http.authentication.oidc.configuration import (
    AuthenticationConfiguration,
    ClaimOrExpression,
    ClaimValidationRule,
    ExtraMapping,
    Issuer,
    PrefixedClaimOrExpression,
    UserValidationRule,
)
from kubechronicle.http.authentication.oidc.validation import compile_configuration
from kubechronicle.http.authentication.user import User


def of_claim(name: str, prefix: str = "") -> PrefixedClaimOrExpression:
    return PrefixedClaimOrExpression(claim=name, prefix=prefix)


ISSUER = Issuer(url="https://auth.example.com", audiences=("my-client",))
PLAIN = of_claim("username")


def expression(text: str) -> PrefixedClaimOrExpression:
    return PrefixedClaimOrExpression(expression=text)


def user_of(claims: dict[str, Any], **parts: Any) -> User:
    config = authenticator(**{"issuer": ISSUER, "username": PLAIN, **parts})
    (mapper,) = compile_configuration(AuthenticationConfiguration(jwt=(config,)))
    return mapper.user_of({"iss": ISSUER.url, "aud": "my-client", "exp": 2_000_000_000, **claims})


JANE = {"username": "jane"}
GROUPS = of_claim("groups")


@pytest.mark.parametrize(
    ("claims", "mapping", "name"),
    [
        (JANE, PLAIN, "jane"),
        (JANE, of_claim("username", "oidc:"), "oidc:jane"),
        (
            {"sub": "1"},
            of_claim("sub", "https://auth.example.com#"),
            "https://auth.example.com#1",
        ),
        ({"username": ""}, PLAIN, ""),
        ({"username": None}, of_claim("username", "x"), "x"),
        ({"username": " "}, PLAIN, " "),
        (
            {"https://example.com/name": "j"},
            of_claim("https://example.com/name"),
            "j",
        ),
        ({"email": "j@x", "email_verified": True}, of_claim("email"), "j@x"),
        ({"email": "j@x"}, of_claim("email"), "j@x"),
        ({"email": "j@x", "email_verified": False, "username": "j"}, PLAIN, "j"),
    ],
)
def test_usernames(claims: dict[str, Any], mapping: PrefixedClaimOrExpression, name: str) -> None:
    assert user_of(claims, username=mapping) == User(name=name)


@pytest.mark.parametrize(
    ("claims", "mapping", "why"),
    [
        ({}, PLAIN, 'oidc: parse username claims "username": claim not present'),
        ({"username": 5}, PLAIN, "cannot unmarshal number into Go value of type string"),
        ({"username": ["jane"]}, PLAIN, "cannot unmarshal array into Go value of type string"),
        ({"username": {"a": 1}}, PLAIN, "cannot unmarshal object into Go value of type string"),
        ({"username": True}, PLAIN, "cannot unmarshal bool into Go value of type string"),
        (
            {"email": "j@x", "email_verified": False},
            of_claim("email"),
            "oidc: email not verified",
        ),
        (
            {"email": "j@x", "email_verified": None},
            of_claim("email"),
            "oidc: email not verified",
        ),
        (
            {"email": "j@x", "email_verified": "true"},
            of_claim("email"),
            "oidc: parse 'email_verified' claim: json: cannot unmarshal string into Go value of type bool",
        ),
        ({"email_verified": True}, of_claim("email"), "claim not present"),
    ],
)
def test_usernames_rejected(claims: dict[str, Any], mapping: PrefixedClaimOrExpression, why: str) -> None:
    with pytest.raises(TokenRejected) as caught:
        user_of(claims, username=mapping)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("groups", "prefix", "expected"),
    [
        (["a", "b"], "", ("a", "b")),
        (["a", "b"], "oidc:", ("oidc:a", "oidc:b")),
        ("single", "", ("single",)),
        ("single", "x-", ("x-single",)),
        ([], "x", ()),
        (None, "x", ()),
        ([None, "a"], "p", ("p", "pa")),
        ("", "", ("",)),
        (["a", "a"], "", ("a", "a")),
        (..., "x", ()),
    ],
)
def test_groups(groups: Any, prefix: str, expected: tuple[str, ...]) -> None:
    claims = JANE if groups is ... else {**JANE, "groups": groups}
    user = user_of(claims, groups=of_claim("groups", prefix))
    assert user == User(name="jane", groups=expected)


@pytest.mark.parametrize(("groups", "word"), [(42, "number"), ([1], "array"), ({"a": "b"}, "object"), (True, "bool")])
def test_groups_rejected(groups: Any, word: str) -> None:
    with pytest.raises(TokenRejected) as caught:
        user_of({**JANE, "groups": groups}, groups=GROUPS)
    why = f'oidc: parse groups claim "groups": json: cannot unmarshal {word} into Go value of type string'
    assert str(caught.value) == why


def test_uids() -> None:
    uid = ClaimOrExpression(claim="uid")
    assert user_of({**JANE, "uid": "007"}, uid=uid).uid == "007"
    assert user_of({**JANE, "uid": None}, uid=uid).uid == ""
    for claims, why in ((JANE, "claim not present"), ({**JANE, "uid": 7}, "cannot unmarshal number")):
        with pytest.raises(TokenRejected, match=f'oidc: parse uid claim "uid": .*{why}'):
            user_of(claims, uid=uid)


@pytest.mark.parametrize(
    ("jti", "extra"),
    [("a", {CREDENTIAL_ID: ("JTI=a",)}), ("", {}), (None, {}), (5, {}), (["a"], {})],
)
def test_the_token_id_is_in_the_extra(jti: Any, extra: dict[str, Any]) -> None:
    assert user_of({**JANE, "jti": jti}).extra == extra


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({}, "oidc: required claim hd not present in ID token"),
        ({"hd": "example.org"}, "value does not match. Got = example.org, want = example.com"),
        ({"hd": 5}, "oidc: parse claim hd: json: cannot unmarshal number into Go value of type string"),
        ({"hd": ["example.com"]}, "cannot unmarshal array"),
        ({"hd": None}, "value does not match. Got = , want = example.com"),
        ({"hd": "example.com "}, "value does not match"),
    ],
)
def test_required_claims(claims: dict[str, Any], why: str) -> None:
    rules = (ClaimValidationRule(claim="hd", required_value="example.com"), ClaimValidationRule(claim="empty"))
    assert user_of({**JANE, "hd": "example.com", "empty": ""}, claim_validation_rules=rules).name == "jane"
    with pytest.raises(TokenRejected) as caught:
        user_of({**JANE, "empty": "", **claims}, claim_validation_rules=rules)
    assert why in str(caught.value)
    with pytest.raises(TokenRejected, match="empty"):
        user_of({**JANE, "hd": "example.com", "empty": "x"}, claim_validation_rules=rules)


TURTLE = {
    "turtle": {
        "foo": {
            "1": "a",
            "other1": {"bit1": True, "bit2": False},
            "bar": {
                "other1": {"bit1": True, "bit2": False, "bit3": 1},
                "baz": {"panda": ["snorlax", "007", "santa", "claus"], "other1": {"bit1": True, "bit3": 1}},
            },
        }
    }
}
ACCOUNT = {
    "sub": "system:serviceaccount:kube-system:default",
    "jti": "ea28ed49",
    "kubernetes.io": {
        "namespace": "kube-system",
        "node": {"name": "n1", "uid": "58456cb0"},
        "pod": {"name": "p1", "uid": "5e0bd49b"},
        "serviceaccount": {"name": "default", "uid": "4fc3a4f2"},
        "warnafter": 1732997724,
    },
}


@pytest.mark.parametrize(
    ("claims", "text", "value"),
    [
        (JANE, "claims.username", "jane"),
        (JANE, "'oidc:' + claims.username", "oidc:jane"),
        (JANE, "claims['username'] + ':external-user'", "jane:external-user"),
        ({"foo": {"username": "j"}}, "claims.foo.username", "j"),
        ({"a.b": "x"}, "claims['a.b']", "x"),
        ({"a.b": "x"}, "claims.a__dot__b", "x"),
        ({"a-b": "x"}, "claims.a__dash__b", "x"),
        ({"a/b": "x"}, "claims.a__slash__b", "x"),
        ({"a__b": "x"}, "claims.a__underscores__b", "x"),
        ({"namespace": "x"}, "claims.__namespace__", "x"),
        ({"x.y": {"z.w": "deep"}}, "claims.x__dot__y.z__dot__w", "deep"),
        ({"l": [{"x.y": "in a list"}]}, "claims.l[0].x__dot__y", "in a list"),
        (TURTLE, "claims.turtle.foo.bar.baz.panda[0]", "snorlax"),
        (TURTLE, "claims.turtle.foo['1']", "a"),
        (TURTLE, "string(claims.turtle.foo.bar.other1.bit3)", "1"),
        (TURTLE, "string(claims.turtle.foo.bar.other1.bit2)", "false"),
        (ACCOUNT, "'account:' + claims.kubernetes__dot__io.namespace", "account:kube-system"),
        (ACCOUNT, "string(int(claims.kubernetes__dot__io.warnafter))", "1732997724"),
        ({"n": 1.5}, "string(claims.n)", "1.5"),
        ({"n": 3}, "string(claims.n + 0.5)", "3.5"),
        (JANE, "claims.?nick.orValue('none')", "none"),
        ({"email": "a@b", "email_verified": True}, "claims.?email_verified.orValue(true) ? claims.email : 'x'", "a@b"),
        (
            {"email": "a@b", "email_verified": False, "sub": "s"},
            "claims.?email_verified.orValue(false) ? claims.email : claims.sub",
            "s",
        ),
        ({"roles": "admin,user"}, "claims.roles.split(',')[1]", "user"),
        (JANE, "has(claims.username) ? 'yes' : 'no'", "yes"),
        (JANE, "has(claims.other) ? 'yes' : 'no'", "no"),
        (JANE, "'username' in claims ? 'yes' : 'no'", "yes"),
        ({"upn": "JANE@Example"}, "claims.upn.lowerAscii()", "jane@example"),
    ],
)
def test_username_expressions(claims: dict[str, Any], text: str, value: str) -> None:
    assert user_of(claims, username=expression(text)).name == value


@pytest.mark.parametrize(
    ("claims", "text", "why"),
    [
        ({}, "claims.username", "expression 'claims.username' resulted in error: no such key: username"),
        ({"username": ""}, "claims.username", "oidc: empty username via CEL expression is not allowed"),
        ({"username": 5}, "claims.username", "username claim expression must return a string"),
        ({"username": ["a"]}, "claims.username", "username claim expression must return a string"),
        ({"username": None}, "claims.username", "username claim expression must return a string"),
        ({"username": True}, "claims.username", "username claim expression must return a string"),
        (JANE, "claims.?username", "username claim expression must return a string"),
        (JANE, "b'jane'", "username claim expression must return a string"),
        (JANE, "claims.username + 1", "no such overload"),
        (JANE, "claims.username.foo", "error evaluating username claim expression"),
    ],
)
def test_username_expressions_rejected(claims: dict[str, Any], text: str, why: str) -> None:
    with pytest.raises(TokenRejected) as caught:
        user_of(claims, username=expression(text))
    assert why in str(caught.value)
    assert str(caught.value).startswith("oidc: ")


@pytest.mark.parametrize(
    ("value", "text", "expected"),
    [
        (["a", "b"], "claims.x", ("a", "b")),
        ("one", "claims.x", ("one",)),
        ("", "claims.x", ()),
        ([], "claims.x", ()),
        (None, "claims.x", ()),
        (["", "a", ""], "claims.x", ("a",)),
        ("a,b", "claims.x.split(',')", ("a", "b")),
        (["a"], "claims.x.map(g, 'p:' + g)", ("p:a",)),
        (["a", "b"], "claims.x.filter(g, g != 'a')", ("b",)),
        (["a"], "claims.x + ['b', 'c']", ("a", "b", "c")),
        ({"admin": "true"}, "claims.x.?roles.orValue([])", ()),
        ({"roles": ["r"]}, "claims.x.?roles.orValue([])", ("r",)),
        (True, "claims.x ? 'yes' : ''", ("yes",)),
        (False, "claims.x ? 'yes' : ''", ()),
        (False, "['a', string(claims.x)]", ("a", "false")),
        ("q", "[claims.x]", ("q",)),
    ],
)
def test_group_and_extra_expressions(value: Any, text: str, expected: tuple[str, ...]) -> None:
    claims = {**JANE, "x": value}
    assert user_of(claims, groups=expression(text)).groups == expected
    extra = user_of(claims, extra=(ExtraMapping(key="example.org/x", value_expression=text),)).extra
    assert extra == ({"example.org/x": expected} if expected else {})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "claims.x"),
        ([1], "claims.x"),
        (["a", 1], "claims.x"),
        ({"a": "b"}, "claims.x"),
        (True, "claims.x"),
        ("a", "claims.?x"),
        ([["a"]], "claims.x"),
        ("a", "b'x'"),
        (["a", None], "claims.x"),
    ],
)
def test_group_and_extra_expressions_rejected(value: Any, text: str) -> None:
    claims = {**JANE, "x": value}
    with pytest.raises(
        TokenRejected, match="oidc: error evaluating group claim expression: expression must return a string"
    ):
        user_of(claims, groups=expression(text))
    with pytest.raises(TokenRejected, match="expression must return a string or a list of strings"):
        user_of(claims, extra=(ExtraMapping(key="example.org/x", value_expression=text),))


def test_uid_expressions() -> None:
    assert user_of({**JANE, "u": "7"}, uid=ClaimOrExpression(expression="claims.u")).uid == "7"
    assert user_of(JANE, uid=ClaimOrExpression(expression="''")).uid == ""
    with pytest.raises(TokenRejected, match="uid claim expression must return a string"):
        user_of({**JANE, "u": 7}, uid=ClaimOrExpression(expression="claims.u"))
    with pytest.raises(TokenRejected, match=r"uid claim expression: expression 'claims.u' resulted in error"):
        user_of(JANE, uid=ClaimOrExpression(expression="claims.u"))


@pytest.mark.parametrize(
    ("claims", "rule", "holds"),
    [
        ({"hd": "example.com"}, 'claims.hd == "example.com"', True),
        ({"hd": "example.org"}, 'claims.hd == "example.com"', False),
        ({"foo": {"bar": "baz"}}, 'claims.foo.bar == "baz"', True),
        ({"aud": ["bar", "foo", "baz"]}, 'sets.equivalent(claims.aud, ["bar", "foo", "baz"])', True),
        ({"aud": ["bar", "foo"]}, 'sets.equivalent(claims.aud, ["bar", "foo", "baz"])', False),
        ({"nbf": 1_999_996_400}, "claims.exp - claims.nbf <= 86400", True),
        ({"nbf": 1_000_000_000}, "claims.exp - claims.nbf <= 86400", False),
        ({"nbf": 1_999_996_400}, "claims.exp - claims.nbf <= 86400.0", True),
        ({"level": 3}, "claims.level == 3", True),
        ({"level": 3}, "claims.level > 3", False),
        ({"level": 3}, "int(claims.level) % 2 == 1", True),
        ({"ok": True}, "claims.ok == true", True),
        ({"ok": "true"}, "claims.ok == true", False),
        ({}, "claims.?email_verified.orValue(true) == true", True),
        ({"email_verified": False}, "claims.?email_verified.orValue(true) == true", False),
        ({"email_verified": "true"}, "claims.?email_verified.orValue(true) == true", False),
        ({"groups": ["a"]}, "claims.groups.exists(g, g == 'a')", True),
        ({"groups": ["a"]}, "claims.groups.all(g, g.startsWith('b'))", False),
        (TURTLE, "claims.turtle.foo.other1.bit1 && !claims.turtle.foo.bar.other1.bit2", True),
        (ACCOUNT, "has(claims.kubernetes__dot__io.pod.uid)", True),
        (ACCOUNT, 'claims["kubernetes.io"]["node"]["uid"] != ""', True),
        (ACCOUNT, 'claims[?"kubernetes.io"]["node"]["ip"].orValue(true) == true', True),
        (ACCOUNT, "claims.sub == 'system:serviceaccount:' + claims.kubernetes__dot__io.namespace + ':default'", True),
        ({"sub": "repo:octo/app"}, "claims.sub.matches('^repo:octo/.*$')", True),
    ],
)
def test_claim_rules(claims: dict[str, Any], rule: str, holds: bool) -> None:
    rules = (ClaimValidationRule(expression="true"), ClaimValidationRule(expression=rule, message="why it failed"))
    if holds:
        assert user_of({**JANE, **claims}, claim_validation_rules=rules).name == "jane"
        return
    with pytest.raises(TokenRejected) as caught:
        user_of({**JANE, **claims}, claim_validation_rules=rules)
    prefix = "oidc: error evaluating claim validation expression: validation expression"
    assert str(caught.value) == f"{prefix} '{rule}' failed: why it failed"


@pytest.mark.parametrize(
    "rule",
    ["claims.hd == 'x'", "claims.foo.bar == 'x'", "claims.username.size() > claims.nothing", "claims.n == 1 / 0"],
)
def test_a_rule_without_a_value_rejects(rule: str) -> None:
    with pytest.raises(
        TokenRejected, match=r"oidc: error evaluating claim validation expression: expression '.*' resulted"
    ):
        user_of(JANE, claim_validation_rules=(ClaimValidationRule(expression=rule),))


def test_a_rule_that_costs_too_much_rejects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions, "BUDGET", 10_000)
    many = "claims.l.all(a, claims.l.all(b, claims.l.all(c, a + b + c != 'x')))"
    with pytest.raises(TokenRejected, match="cost limit exceeded"):
        user_of({**JANE, "l": ["a"] * 300}, claim_validation_rules=(ClaimValidationRule(expression=many),))


@pytest.mark.parametrize(
    ("rule", "holds"),
    [
        ("!user.username.startsWith('system:')", True),
        ("user.username.startsWith('system:')", False),
        ("user.groups.all(group, !group.startsWith('system:'))", True),
        ("'team' in user.groups", True),
        ("'other' in user.groups", False),
        ("user.uid == '007'", True),
        ("user.uid != ''", True),
        ("user.extra['example.org/foo'][0] == 'bar'", True),
        ("'bar' in user.extra['example.org/foo']", True),
        ("user.extra.example__dot__org__slash__foo.size() == 1", True),
        ("!('nothing' in user.extra)", True),
        ("user.groups.size() == 1", True),
        ("user.extra[?'nothing'][0].orValue('') == ''", True),
        ("!(user.extra[?'authentication.kubernetes.io/credential-id'][0].orValue('') in ['JTI=ea28ed49'])", False),
    ],
)
def test_user_rules(rule: str, holds: bool) -> None:
    parts = {
        "username": expression("'jane'"),
        "groups": expression("'team'"),
        "uid": expression("'007'"),
        "extra": (ExtraMapping(key="example.org/foo", value_expression="'bar'"),),
        "user_validation_rules": (
            UserValidationRule(expression="true"),
            UserValidationRule(expression=rule, message="why it failed"),
        ),
    }
    claims = {"jti": "ea28ed49"}
    if holds:
        assert user_of(claims, **parts).name == "jane"
        return
    with pytest.raises(TokenRejected) as caught:
        user_of(claims, **parts)
    prefix = "oidc: error evaluating user info validation rule: validation expression"
    assert str(caught.value) == f"{prefix} '{rule}' failed: why it failed"


def test_unset_fields_can_be_read() -> None:
    rules = ("user.username == ' '", "user.uid == ''", "!('bar' in user.groups)", "!('bar' in user.extra)")
    user = user_of(
        {"username": " "}, user_validation_rules=tuple(UserValidationRule(expression=rule) for rule in rules)
    )
    assert user == User(name=" ")


def test_the_order_of_evaluation() -> None:
    """kube-apiserver's: username, groups, uid, extra, required claims, claim rules, user rules."""
    failing: list[tuple[str, Any, str]] = [
        (
            "user_validation_rules",
            (UserValidationRule(expression="user.username == 'x'"),),
            "user info validation rule",
        ),
        (
            "claim_validation_rules",
            (ClaimValidationRule(expression="claims.nothing == 1"),),
            "claim validation expression",
        ),
        ("extra", (ExtraMapping(key="example.org/x", value_expression="claims.nothing"),), "no such key: nothing"),
        ("uid", expression("claims.nothing"), "uid claim expression"),
        ("groups", expression("claims.nothing"), "group claim expression"),
        ("username", expression("claims.nothing"), "username claim expression"),
    ]
    parts: dict[str, Any] = {}
    for part, value, why in failing:
        parts[part] = value
        with pytest.raises(TokenRejected) as caught:
            user_of(JANE, **parts)
        assert why in str(caught.value)


def test_a_service_account_s_token_in_full() -> None:
    user = user_of(
        ACCOUNT,
        username=expression(
            '"system:serviceaccount:" + claims.kubernetes__dot__io.namespace + ":" + '
            "claims.kubernetes__dot__io.serviceaccount.name"
        ),
        uid=ClaimOrExpression(expression="claims.kubernetes__dot__io.serviceaccount.uid"),
        groups=expression(
            '["system:serviceaccounts", "system:serviceaccounts:" + claims.kubernetes__dot__io.namespace]'
        ),
        extra=(
            ExtraMapping(key="example.org/pod-name", value_expression="claims.kubernetes__dot__io.pod.name"),
            ExtraMapping(key="example.org/credential-id", value_expression='"JTI=" + claims.jti'),
        ),
    )
    assert user == User(
        name="system:serviceaccount:kube-system:default",
        uid="4fc3a4f2",
        groups=("system:serviceaccounts", "system:serviceaccounts:kube-system"),
        extra={
            CREDENTIAL_ID: ("JTI=ea28ed49",),
            "example.org/pod-name": ("p1",),
            "example.org/credential-id": ("JTI=ea28ed49",),
        },
    )
