"""The information in a request's method and path: the table of k8s.io/apiserver's resolver, and its edge cases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubechronicle.api.meta.request_info import Query, RequestInfo, resolve

# method, path?query, verb, group, version, namespace, resource, subresource, name
RESOURCES = [
    ("GET", "/api/v1/namespaces", "list", "", "v1", "", "namespaces", "", ""),
    ("GET", "/api/v1/namespaces/other", "get", "", "v1", "other", "namespaces", "", "other"),
    ("GET", "/api/v1/namespaces/other/pods", "list", "", "v1", "other", "pods", "", ""),
    ("GET", "/api/v1/namespaces/other/pods/foo", "get", "", "v1", "other", "pods", "", "foo"),
    ("HEAD", "/api/v1/namespaces/other/pods/foo", "get", "", "v1", "other", "pods", "", "foo"),
    ("GET", "/api/v1/pods", "list", "", "v1", "", "pods", "", ""),
    ("HEAD", "/api/v1/pods", "list", "", "v1", "", "pods", "", ""),
    ("GET", "/api/v1/namespaces/other/pods/foo/status", "get", "", "v1", "other", "pods", "status", "foo"),
    ("GET", "/api/v1/namespaces/other/pods/foo/proxy/a/b", "get", "", "v1", "other", "pods", "proxy", "foo"),
    ("POST", "/api/v1/namespaces/other/pods", "create", "", "v1", "other", "pods", "", ""),
    ("PUT", "/api/v1/namespaces/other/pods/foo", "update", "", "v1", "other", "pods", "", "foo"),
    ("PATCH", "/api/v1/namespaces/other/pods/foo", "patch", "", "v1", "other", "pods", "", "foo"),
    ("DELETE", "/api/v1/namespaces/other/pods/foo", "delete", "", "v1", "other", "pods", "", "foo"),
    ("DELETE", "/api/v1/namespaces/other/pods", "deletecollection", "", "v1", "other", "pods", "", ""),
    ("DELETE", "/api/v1/nodes", "deletecollection", "", "v1", "", "nodes", "", ""),
    # a namespace's own subresources
    ("PUT", "/api/v1/namespaces/other/finalize", "update", "", "v1", "other", "namespaces", "finalize", "other"),
    ("PUT", "/api/v1/namespaces/other/status", "update", "", "v1", "other", "namespaces", "status", "other"),
    ("GET", "/api/v1/namespaces/other/status/x", "get", "", "v1", "other", "status", "", "x"),
    # groups
    ("GET", "/apis/apps/v1/deployments", "list", "apps", "v1", "", "deployments", "", ""),
    ("GET", "/apis/apps/v1/namespaces/a/deployments/d/scale", "get", "apps", "v1", "a", "deployments", "scale", "d"),
    ("POST", "/apis/example.com/v1/namespaces/a/things", "create", "example.com", "v1", "a", "things", "", ""),
    # watches
    ("GET", "/api/v1/namespaces/other/pods?watch=1", "watch", "", "v1", "other", "pods", "", ""),
    ("GET", "/api/v1/namespaces/other/pods?watch=true&x=1", "watch", "", "v1", "other", "pods", "", ""),
    ("GET", "/api/v1/namespaces/other/pods?watch=false", "list", "", "v1", "other", "pods", "", ""),
    ("GET", "/api/v1/namespaces/other/pods?watch=0", "list", "", "v1", "other", "pods", "", ""),
    ("GET", "/api/v1/namespaces/other/pods/foo?watch=1", "get", "", "v1", "other", "pods", "", "foo"),
    ("GET", "/api/v1/watch/pods", "watch", "", "v1", "", "pods", "", ""),
    ("GET", "/api/v1/watch/namespaces/other/pods", "watch", "", "v1", "other", "pods", "", ""),
    ("GET", "/api/v1/watch/namespaces/other/pods/foo", "watch", "", "v1", "other", "pods", "", "foo"),
    ("GET", "/apis/apps/v1/watch/deployments", "watch", "apps", "v1", "", "deployments", "", ""),
    ("GET", "/api/v1/watch/namespaces", "watch", "", "v1", "", "namespaces", "", ""),
    # the other old verb, without subresources
    ("GET", "/api/v1/proxy/namespaces/other/pods/foo/x", "proxy", "", "v1", "other", "pods", "", "foo"),
    # redundant slashes: an empty part is one
    ("GET", "/api/v1/pods/", "list", "", "v1", "", "pods", "", ""),
    ("GET", "/api/v1//pods", "get", "", "v1", "", "", "", "pods"),
    ("GET", "/api//v1", "list", "", "", "", "v1", "", ""),
    ("GET", "/api/v1/namespaces/other//pods", "get", "", "v1", "other", "", "", "pods"),
    ("GET", "/api/v1/namespaces///pods", "get", "", "v1", "", "", "", "pods"),
    ("GET", "/apis/apps/v1/watch//deployments", "watch", "apps", "v1", "", "", "", "deployments"),
    ("GET", "/api/v1/namespaces//pods", "list", "", "v1", "", "pods", "", ""),
    ("GET", "/api/v1/namespaces//pods/a", "get", "", "v1", "", "pods", "", "a"),
]


@pytest.mark.parametrize(
    ("method", "target", "verb", "group", "version", "namespace", "resource", "subresource", "name"),
    RESOURCES,
    ids=lambda value: value if isinstance(value, str) and value.startswith("/") else "",
)
def test_resource_requests(
    method: str,
    target: str,
    verb: str,
    group: str,
    version: str,
    namespace: str,
    resource: str,
    subresource: str,
    name: str,
) -> None:
    path, _, query = target.partition("?")
    info = resolve(method, path, Query(query))
    assert info.is_resource
    assert info.prefix == path.split("/")[1]
    found = (info.verb, info.group, info.version, info.namespace, info.resource, info.subresource, info.name)
    assert found == (verb, group, version, namespace, resource, subresource, name)
    assert info.deprecated_watch == ("/watch/" in path)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/api",
        "/api/",
        "/api/v1",
        "/apis",
        "/apis/apps",
        "/apis/apps/v1",
        "/healthz",
        "/metrics",
        "/version",
        "//",
        "/openapi/v3/api/v1",
        "/logs/a/b/c/d",
    ],
)
def test_other_requests(path: str) -> None:
    assert resolve("GET", path, Query("watch=1")) == RequestInfo(path=path, verb="get")
    assert resolve("POST", path, Query("")) == RequestInfo(path=path, verb="post")


@pytest.mark.parametrize("path", ["/api/v1/watch", "/apis/apps/v1/proxy", "/api//watch/", "//apis/a/b/watch//"])
def test_a_path_that_ends_with_an_old_verb_is_undetermined(path: str) -> None:
    assert resolve("GET", path, Query("")) == RequestInfo(path=path, verb="get", undetermined=True)


def test_an_unknown_method_is_no_verb() -> None:
    assert resolve("OPTIONS", "/api/v1/pods", Query("")).verb == ""


def test_the_group_resource_of_errors() -> None:
    assert resolve("GET", "/api/v1/pods", Query("")).group_resource == "pods"
    assert resolve("GET", "/apis/apps/v1/deployments", Query("")).group_resource == "deployments.apps"


@given(st.text(max_size=10), st.text(alphabet="/apisv1watchnmepd%?=\x00é", max_size=60), st.text(max_size=30))
def test_it_never_fails(method: str, path: str, query: str) -> None:
    info = resolve(method, path, Query(query))
    assert info.path == path
    assert not info.is_resource or info.parts


# -- the query string -----------------------------------------------------------------------------------------------


def test_the_first_value_counts() -> None:
    query = Query("a=1&a=2&b&c=&%64=x+y%20z&&e=1=2")
    assert query.get("a") == "1"
    assert query.get_all("a") == ["1", "2"]
    assert query.get("b", "?") == query.get("c", "?") == ""
    assert query.get("d") == "x y z"
    assert query.get("e") == "1=2"
    assert query.get("missing", "?") == "?"
    assert "b" in query
    assert "missing" not in query


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", False),
        ("watch", True),
        ("watch=", True),
        ("watch=1", True),
        ("watch=true", True),
        ("watch=yes", True),
        ("watch=0", False),
        ("watch=false", False),
        ("watch=False", False),
        ("watch=f", True),
        ("watch=FALSE", False),
        ("watch=false&watch=1", False),
    ],
)
def test_flags(text: str, expected: bool) -> None:
    assert Query(text).flag("watch") is expected


def test_invalid_utf8_in_a_query_is_replaced() -> None:
    assert Query("b=%ff").get("b") == "\ufffd"


@pytest.mark.parametrize("pair", ["a=%zz", "a=1%", "a=%4", "%zz=a", "a;b=c", "a=1;b=2", ";"])
def test_pairs_that_go_cannot_decode_are_dropped(pair: str) -> None:
    assert Query(f"x=1&{pair}&y=%32").as_dict() == {"x": ["1"], "y": ["2"]}


def test_parameters_change_no_post() -> None:
    path = "/api/v1/namespaces/a/pods"
    plain = resolve("POST", path, Query(""))
    assert (plain.verb, plain.field_selector) == ("create", "")
    assert resolve("POST", path, Query("watch=1&fieldSelector=metadata.name%3Da")) == plain
    assert resolve("GET", path, Query("fieldSelector=metadata.name%3Da")).field_selector == "metadata.name=a"
