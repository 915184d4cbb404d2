"""The audit policy: decoding, one-line errors, and which rule decides about a request."""

from __future__ import annotations

import random
from time import thread_time
from typing import Any

import pytest
import yaml

from kubechronicle.api.audit import matching
from kubechronicle.api.audit.matching import MOST_KEPT, AuditDecision, Matcher
from kubechronicle.api.audit.policy import PolicyError, load
from kubechronicle.api.meta.request_info import Query, resolve


def policy(*rules: dict[str, Any], **fields: Any) -> bytes:
    return yaml.safe_dump({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": list(rules), **fields}).encode()


def decide(
    data: bytes, path: str, *, method: str = "GET", user: str = "jane", groups: tuple[str, ...] = ("ops",)
) -> AuditDecision:
    raw, _, query = path.partition("?")
    return Matcher(load(data)[0]).decide(user, groups, resolve(method, raw, Query(query)))


METADATA = {"level": "Metadata"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "failed decoding: the file is empty"),
        (b"[", "failed decoding: "),
        (b"kind: Policy", "failed decoding: Object 'apiVersion' is missing in the file"),
        (b"apiVersion: audit.k8s.io/v1", "failed decoding: Object 'Kind' is missing in the file"),
        (b"apiVersion: audit.k8s.io/v1beta1\nkind: Policy", 'no kind "Policy" is registered for version'),
        (policy(), "loaded illegal policy with 0 rules"),
        (policy({}), "rules[0].level: Required value"),
        (policy({"level": "All"}), 'rules[0].level: Unsupported value: "All": supported values: "None", "Metadata"'),
        (policy({"level": 3}), "json: cannot unmarshal number into Go struct field PolicyRule.rules.level of type"),
        (policy(METADATA | {"nonResourceURLs": ["metrics"]}), "must begin with a '/' character"),
        (policy(METADATA | {"nonResourceURLs": ["/a*b"]}), "must be the final character of the rule"),
        (
            policy(METADATA | {"nonResourceURLs": ["/a"], "namespaces": ["a"]}),
            "both regular resources and non-resource",
        ),
        (
            policy(METADATA | {"resources": [{"group": "apps/v1"}]}),
            'rules[0].resources.group: Invalid value: "apps/v1"',
        ),
        (policy(METADATA | {"resources": [{"resourceNames": ["a"]}]}), "requires at least one resource"),
        (policy(METADATA | {"omitStages": ["Begin"]}), 'omitStages[0]: Invalid value: "Begin": allowed stages are'),
        (policy(METADATA, omitStages=["End"]), 'omitStages[0]: Invalid value: "End"'),
    ],
)
def test_an_unusable_policy_is_refused_in_one_line(data: bytes, message: str) -> None:
    with pytest.raises(PolicyError) as refused:
        load(data)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_unknown_and_repeated_fields_are_warnings() -> None:
    found, warnings = load(policy(METADATA | {"user": ["x"]}, rule=[]) + b"rules: [{level: None}]\n")
    assert [rule.level for rule in found.rules] == ["None"]
    assert len(warnings) >= 2


def test_json_is_a_policy_too() -> None:
    found, warnings = load(b'{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Request"}]}')
    assert (found.rules[0].level, warnings) == ("Request", [])


@pytest.mark.parametrize(
    ("rule", "path", "matches"),
    [
        ({}, "/healthz", True),
        ({}, "/api/v1/pods", True),
        ({"users": ["jane"]}, "/api/v1/pods", True),
        ({"users": ["joe"]}, "/api/v1/pods", False),
        ({"userGroups": ["dev", "ops"]}, "/api/v1/pods", True),
        ({"userGroups": ["dev"]}, "/api/v1/pods", False),
        ({"verbs": ["list"]}, "/api/v1/pods", True),
        ({"verbs": ["watch"]}, "/api/v1/pods?watch=1", True),
        ({"verbs": ["get"]}, "/api/v1/pods", False),
        ({"namespaces": ["shop"]}, "/api/v1/namespaces/shop/pods", True),
        ({"namespaces": ["shop"]}, "/healthz", False),
        ({"namespaces": [""]}, "/api/v1/nodes", True),
        ({"namespaces": [""]}, "/api/v1/namespaces/shop", False),
        ({"resources": [{"group": ""}]}, "/api/v1/namespaces/a/pods/b/log", True),
        ({"resources": [{"group": ""}]}, "/apis/apps/v1/deployments", False),
        ({"resources": [{"group": "*", "resources": ["deployments"]}]}, "/apis/apps/v1/deployments", True),
        ({"resources": [{"resources": ["pods"]}]}, "/api/v1/namespaces/a/pods/b", True),
        ({"resources": [{"resources": ["pods"]}]}, "/api/v1/namespaces/a/pods/b/log", False),
        ({"resources": [{"resources": ["pods/log"]}]}, "/api/v1/namespaces/a/pods/b/log", True),
        ({"resources": [{"resources": ["pods/*"]}]}, "/api/v1/namespaces/a/pods/b/log", True),
        ({"resources": [{"resources": ["pods/*"]}]}, "/api/v1/namespaces/a/pods/b", True),
        ({"resources": [{"resources": ["*/log"]}]}, "/api/v1/namespaces/a/pods/b/log", True),
        ({"resources": [{"resources": ["*/status"]}]}, "/api/v1/namespaces/a/pods/b/log", False),
        ({"resources": [{"resources": ["*"]}]}, "/api/v1/namespaces/a/pods/b/log", True),
        ({"resources": [{"resources": ["pods"], "resourceNames": ["b"]}]}, "/api/v1/namespaces/a/pods/b", True),
        ({"resources": [{"resources": ["pods"], "resourceNames": ["c"]}]}, "/api/v1/namespaces/a/pods/b", False),
        ({"resources": [{"resources": ["pods"]}]}, "/api", False),
        ({"nonResourceURLs": ["/healthz*"]}, "/healthz/ping", True),
        ({"nonResourceURLs": ["/healthz"]}, "/healthz/ping", False),
        ({"nonResourceURLs": ["*"]}, "/version", True),
        ({"nonResourceURLs": ["*"]}, "/api/v1/pods", False),
    ],
)
def test_a_rule_matches_what_fits_all_its_lists(rule: dict[str, Any], path: str, matches: bool) -> None:
    assert (decide(policy(METADATA | rule), path).level == "Metadata") is matches


def test_the_first_rule_that_matches_decides() -> None:
    named = {"resources": [{"resources": ["configmaps"], "resourceNames": ["seen"]}]}
    data = policy({"level": "None", "users": ["joe"]}, {"level": "Request", **named}, METADATA)
    path = "/api/v1/namespaces/a/configmaps/seen"
    assert decide(data, path).level == "Request"
    assert decide(data, path, user="joe").level == "None"
    assert decide(data, path + "2").level == "Metadata"


def test_stages_are_omitted_by_the_policy_and_by_the_rule() -> None:
    data = policy(METADATA | {"omitStages": ["Panic"]}, omitStages=["RequestReceived"])
    found = decide(data, "/api")
    assert (found.received, found.started, found.complete, found.panic) == (False, True, True, False)


@pytest.mark.parametrize(("general", "own", "omits"), [(True, None, True), (True, False, False), (False, True, True)])
def test_managed_fields_are_omitted_by_the_rule_or_else_by_the_policy(
    general: bool, own: bool | None, omits: bool
) -> None:
    rule = METADATA | ({} if own is None else {"omitManagedFields": own})
    assert decide(policy(rule, omitManagedFields=general), "/api").omit_managed_fields is omits


def test_paths_that_clients_choose_take_bounded_memory() -> None:
    matcher = Matcher(load(policy(METADATA))[0])
    for number in range(MOST_KEPT + 10):
        matcher.decide("a", (), resolve("GET", f"/{number}", Query("")))
    assert len(matcher._kept) <= MOST_KEPT


def drawn_rule(draw: random.Random) -> dict[str, Any]:
    """Return a rule whose values often match, with any of the conditions."""
    rule: dict[str, Any] = {"level": draw.choice(["Metadata", "Request", "RequestResponse"])}

    def some(name: str, *values: str) -> None:
        if draw.random() < 0.4:
            rule[name] = draw.sample(values, draw.randint(1, 2))

    some("users", "jane", "joe", "jim")
    some("userGroups", "ops", "dev", "all")
    some("verbs", "get", "list", "delete")
    kind = draw.random()
    if kind < 0.3:
        some("nonResourceURLs", "*", "/apis*", "/api", "/healthz/*")
    elif kind < 0.9:
        some("namespaces", "a", "b", "")
        rule["resources"] = [
            {"group": draw.choice(["", "*", "apps"]), **named}
            for named in draw.sample(
                [
                    {},
                    {"resources": ["pods"]},
                    {"resources": ["pods/*", "nodes"]},
                    {"resources": ["*/log"]},
                    {"resources": ["pods/log"], "resourceNames": ["p"]},
                    {"resources": ["*"], "resourceNames": ["p", "q"]},
                ],
                draw.randint(1, 2),
            )
        ]
    return rule


PATHS = [
    "/api", "/apis", "/apis/apps", "/healthz/ping", "/x", "/api/v1/nodes", "/api/v1/namespaces/a/pods",
    "/api/v1/namespaces/b/pods/p", "/api/v1/namespaces/a/pods/p/log", "/api/v1/namespaces/a/pods/q/exec",
    "/apis/apps/v1/namespaces/a/deployments/q", "/apis/apps/v1/deployments",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_an_index_decides_as_the_rules_in_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    rules = load(policy(*(drawn_rule(draw) for _ in range(30))))[0]
    plain = Matcher(rules)
    monkeypatch.setattr(matching, "MANY_RULES", 0)
    indexed = Matcher(rules)
    for path in PATHS:
        for method in ("GET", "DELETE"):
            info = resolve(method, path, Query(""))
            for user, groups in (("jane", ("ops",)), ("joe", ("dev", "all")), ("ann", ())):
                assert indexed.decide(user, groups, info) == plain.decide(user, groups, info), (path, method, user)


def test_a_request_costs_by_the_rules_that_may_match() -> None:
    users = [{"level": "Metadata", "users": [f"u{number}"]} for number in range(5_000)]
    paths = [{"level": "Metadata", "nonResourceURLs": [f"/x{number}/*"]} for number in range(5_000)]
    matcher = Matcher(load(policy(*users, *paths))[0])
    began = thread_time()
    for number in range(1_000):
        assert matcher.decide("a", ("b",), resolve("GET", f"/x{number}/{number}", Query(""))).level == "Metadata"
        assert matcher.decide("a", ("b",), resolve("GET", f"/y{number}", Query(""))).level == "None"
    assert thread_time() - began < 1.0  # each of the 2,000 decisions took 118 ms
