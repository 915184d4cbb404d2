"""Selectors: grammar, messages of rejections, matches."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubechronicle.api.errors.field_errors import Path
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.registry.registry import ResourceType, builtin_registry
from kubechronicle.api.selectors import label_selectors
from kubechronicle.api.selectors.field_selectors import (
    Requirement,
    _split_terms,
    describe,
    field_terms,
    parse_field_selector,
    parse_label_selector,
    selector_from_labels,
    selector_from_spec,
)

NAME_SYNTAX = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  "
    "or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def resource(group: str, version: str, plural: str) -> ResourceType:
    found = builtin_registry().lookup(group, version, plural)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("", {}, True),
        ("a=b", {"a": "b"}, True),
        ("a==b", {"a": "c"}, False),
        ("a=", {"a": ""}, True),
        ("a=", {}, False),
        ("a!=b", {}, True),
        ("a!=b", {"a": "b"}, False),
        ("a", {"a": ""}, True),
        ("!a", {"a": ""}, False),
        ("! a , b", {"b": "1"}, True),
        ("a in (b, c)", {"a": "c"}, True),
        ("a in (,b)", {"a": ""}, True),
        ("a in ()", {"a": ""}, True),
        ("a notin (b,c)", {}, True),
        ("a notin (b,c)", {"a": "b"}, False),
        ("in in (in,notin)", {"in": "notin"}, True),
        ("a>5", {"a": "6"}, True),
        ("a>5", {"a": "x"}, False),
        ("a<5", {"a": "-1"}, True),
        ("a<5", {}, False),
        ("example.com/a=b,c!=d,e", {"example.com/a": "b", "e": ""}, True),
        ("a=b,c=d,e=f", {"a": "b", "c": "d", "e": "x"}, False),
    ],
)
def test_label_selector_matches(text: str, labels: dict[str, str], matches: bool) -> None:
    assert parse_label_selector(text).matches(labels) is matches


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("app in web", "unable to parse requirement: found 'web' expected: '('"),
        ("app in (web", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("app=web,", "found '', expected: identifier after ','"),
        ("=a", "found '=', expected: !, identifier, or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=(", "unable to parse requirement: found '(', expected: identifier"),
        ("!=a", "found '!=', expected: !, identifier, or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a in (=)", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
        ("a in (b,=)", "unable to parse requirement: found '=', expected: ',', or identifier"),
        ("-app=x", f'unable to parse requirement: <nil>: Invalid value: "-app": name part {NAME_SYNTAX}'),
        (
            "a/b/c=x",
            f'unable to parse requirement: <nil>: Invalid value: "a/b/c": a valid label key {NAME_SYNTAX} '
            "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
        ),
        (
            "size>big",
            'unable to parse requirement: values[0]: Invalid value: "big": '
            "for 'Gt', 'Lt' operators, the value must be an integer",
        ),
    ],
)
def test_malformed_label_selectors_are_refused_in_apimachinerys_words(text: str, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        parse_label_selector(text)
    assert (caught.value.code, caught.value.reason, caught.value.message) == (400, "BadRequest", message)


def test_label_selector_is_written_with_its_keys_in_order() -> None:
    text = str(parse_label_selector("z in (b,a),x,!y,a>1,b!=2,c==3"))
    assert text == "a>1,b!=2,c==3,x,!y,z in (a,b)"


def test_selector_objects() -> None:
    assert selector_from_spec(None) is None
    everything = selector_from_spec({})
    assert everything is not None
    assert everything.empty
    selector = selector_from_spec(
        {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["d"]}]}
    )
    assert selector is not None
    assert selector.matches({"a": "b", "c": "e"})
    assert not selector.matches({"a": "b", "c": "d"})
    assert selector_from_labels({"a": "b"}).matches({"a": "b"})


POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "ns", "labels": {"x": "y"}},
    "spec": {"nodeName": "n1", "restartPolicy": "Always"},
    "status": {"phase": "Running"},
}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("spec.nodeName=n1", True),
        ("spec.nodeName==n2", False),
        ("spec.nodeName!=", True),
        ("spec.host=n1", True),
        ("metadata.name=p,status.phase=Running", True),
        ("status.podIP=", True),
        ("spec.hostNetwork=false", True),
        ("status.podIPs=", True),
        ("", True),
        (",", True),
    ],
)
def test_field_selector_matches_a_pod(text: str, matches: bool) -> None:
    labels, fields = describe("pods", POD)
    assert labels == {"x": "y"}
    assert parse_field_selector(text, resource("", "v1", "pods")).matches(fields) is matches


def test_required_gives_the_one_value_demanded() -> None:
    selector = parse_field_selector("spec.nodeName=n1,status.phase!=Failed", resource("", "v1", "pods"))
    assert selector.required("spec.nodeName") == "n1"
    assert selector.required("status.phase") is None
    assert str(selector) == "spec.nodeName=n1,status.phase!=Failed"


def test_field_values_are_unescaped() -> None:
    secrets = resource("", "v1", "secrets")
    selector = parse_field_selector(r"type=a\,b\=c\\", secrets)
    assert selector.matches({"type": "a,b=c\\"})
    assert str(selector) == r"type=a\,b\=c\\"
    for text, message in (
        ("type=a=b", "invalid field selector: unescaped character in value: 61"),
        (r"type=a\b", r"invalid field selector: invalid escape sequence: \b"),
        ("type=a\\", "invalid field selector: invalid escape sequence: \\"),
        ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
        ("metadata.name=a,,b", "invalid selector: 'metadata.name=a,,b'; can't understand 'b'"),
    ):
        with pytest.raises(StatusError) as caught:
            parse_field_selector(text, secrets)
        assert caught.value.message == message


@pytest.mark.parametrize(
    ("group", "plural", "label", "message"),
    [
        ("", "pods", "status.hostIP", "field label not supported: status.hostIP"),
        ("", "nodes", "metadata.namespace", "field label not supported: metadata.namespace"),
        ("batch", "jobs", "status.failed", 'field label "status.failed" not supported for Job'),
        (
            "apps",
            "deployments",
            "spec.replicas",
            '"spec.replicas" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
    ],
)
def test_unknown_fields_are_refused_as_each_kind_does(group: str, plural: str, label: str, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        parse_field_selector(f"{label}=x", resource(group, "v1", plural))
    assert (caught.value.code, caught.value.message) == (400, message)


def test_events_of_both_apis_select_the_same_stored_fields() -> None:
    stored = {"metadata": {"name": "e"}, "involvedObject": {"name": "p"}, "reportingComponent": "kubelet"}
    _, fields = describe("events", stored)
    assert fields["source"] == "kubelet"
    core, other = resource("", "v1", "events"), resource("events.k8s.io", "v1", "events")
    assert parse_field_selector("involvedObject.name=p", core).matches(fields)
    assert parse_field_selector("regarding.name=p,reportingController=kubelet", other).matches(fields)


def test_jobs_count_their_successes() -> None:
    _, fields = describe("jobs.batch", {"metadata": {"name": "j"}, "status": {"succeeded": 2}})
    assert parse_field_selector("status.successful=2", resource("batch", "v1", "jobs")).matches(fields)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", [""]),
        (",", ["", ""]),
        ("a=b,c=d", ["a=b", "c=d"]),
        (r"a=b\,c,d=e", [r"a=b\,c", "d=e"]),
        (r"a=b\\,c=d", [r"a=b\\", "c=d"]),
        (r"a=b\\\,c=d", [r"a=b\\\,c=d"]),
        ("a=b\\\n,c", ["a=b\\\n", "c"]),
        ("a=b\\", ["a=b\\"]),
    ],
)
def test_terms_are_split_at_commas_that_are_not_escaped(text: str, terms: list[str]) -> None:
    assert _split_terms(text) == terms


def test_a_long_term_takes_no_longer_than_it_is() -> None:
    began = process_time()
    assert field_terms("a=" + "x" * 3_000_000) is not None
    assert process_time() - began < 20  # in the square of its length it would be days


_TOKENS = ("a", "b/c", "in", "notin", " in ", " notin ", "(", ")", ",", "=", "==", "!=", "!", "<", ">", "1", " ", "\0")


@given(st.lists(st.sampled_from((*_TOKENS, "A_", "-", "x.y/z", "a=b,", "a in (b,c),")), max_size=9).map("".join))
@settings(max_examples=1000, deadline=None)
def test_requirements_in_the_usual_form_are_read_as_by_the_parser(text: str) -> None:
    def outcome(read: Callable[[], list[Requirement]]) -> object:
        try:
            return read()
        except label_selectors.SelectorSyntaxError as error:
            return str(error)

    slowly = outcome(lambda: label_selectors._SelectorParser(text, Path()).parse([]))
    assert outcome(lambda: label_selectors._read(text, Path())) == slowly
