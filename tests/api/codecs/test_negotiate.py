"""Accept and Content-Type, as answered by kube-apiserver."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubechronicle.api.codecs import negotiate
from kubechronicle.api.codecs.errors import NotAcceptableError, UnsupportedMediaTypeError
from kubechronicle.api.codecs.negotiate import JSON, PROTOBUF, YAML

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
TABLE_BETA = "application/json;as=Table;v=v1beta1;g=meta.k8s.io"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
ALL = "application/json, application/yaml, application/vnd.kubernetes.protobuf"


@pytest.mark.parametrize(
    ("accept", "media_type", "kind", "version"),
    [
        (None, JSON, "", ""),
        ("", JSON, "", ""),
        ("*/*", JSON, "", ""),
        ("*", JSON, "", ""),
        ("application/*", JSON, "", ""),
        ("application/yaml", YAML, "", ""),
        ("application/json, */*", JSON, "", ""),
        (f"{PROTOBUF},application/json", PROTOBUF, "", ""),
        ("text/html,*/*;q=0.8", JSON, "", ""),
        ("application/json;q=0.5,application/yaml", YAML, "", ""),
        ("*/*,application/yaml", YAML, "", ""),
        ("application/*,application/yaml", YAML, "", ""),
        ("application/json;q=x,application/yaml;q=0.1", YAML, "", ""),
        (f"{TABLE},{TABLE_BETA},application/json", JSON, "Table", "v1"),
        (f"application/json,{TABLE}", JSON, "", ""),
        (TABLE_BETA, JSON, "Table", "v1beta1"),
        ("application/json;as=Table;v=v9;g=meta.k8s.io,application/yaml", YAML, "", ""),
        (f"{PROTOBUF};as=Table;v=v1;g=meta.k8s.io,{TABLE}", JSON, "Table", "v1"),
        (f"{PROTOBUF};as=PartialObjectMetadata;v=v1;g=meta.k8s.io", PROTOBUF, "PartialObjectMetadata", "v1"),
        ("application/yaml;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", YAML, "PartialObjectMetadata", "v1"),
        ("*/*;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", JSON, "PartialObjectMetadataList", "v1"),
    ],
)
def test_resources(accept: str | None, media_type: str, kind: str, version: str) -> None:
    found = negotiate.resource(accept)
    assert (found.media_type, found.kind, found.version) == (media_type, kind, version)
    assert found.content_type == media_type


@pytest.mark.parametrize("accept", ["text/plain", "application/json;sv=v1", "application/json/x", ",", "json"])
def test_not_acceptable(accept: str) -> None:
    with pytest.raises(NotAcceptableError) as caught:
        negotiate.resource(accept)
    assert str(caught.value) == f"only the following media types are accepted: {ALL}"


def test_custom_resources_have_no_protobuf_but_their_metadata_does() -> None:
    assert negotiate.resource(f"{PROTOBUF},application/json", protobuf=False).media_type == JSON
    partial = f"{PROTOBUF};as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    assert negotiate.resource(partial, protobuf=False).media_type == PROTOBUF
    with pytest.raises(NotAcceptableError):
        negotiate.resource(PROTOBUF, protobuf=False)


def test_pretty() -> None:
    assert negotiate.resource("application/json;pretty=1").pretty
    assert not negotiate.resource("application/json;pretty=true").pretty
    assert negotiate.wants_pretty("1", None)
    assert not negotiate.wants_pretty("0", "curl/8")
    assert not negotiate.wants_pretty("maybe", "curl/8")
    assert negotiate.wants_pretty(None, "curl/8.5")
    assert not negotiate.wants_pretty("", "kubectl/v1.36")


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (None, JSON),
        ("application/json;stream=watch", JSON),
        (f"{PROTOBUF};stream=watch", f"{PROTOBUF};stream=watch"),
        (f"{PROTOBUF},application/json", f"{PROTOBUF};stream=watch"),
        ("application/yaml;stream=watch,application/json", JSON),
    ],
)
def test_watches(accept: str | None, content_type: str) -> None:
    assert negotiate.watch(accept).stream_content_type == content_type


@pytest.mark.parametrize("accept", [YAML, "text/plain"])
def test_watches_are_not_yaml(accept: str) -> None:
    with pytest.raises(NotAcceptableError) as caught:
        negotiate.watch(accept)
    assert str(caught.value) == (
        "only the following media types are accepted: application/json;stream=watch, "
        "application/vnd.kubernetes.protobuf;stream=watch"
    )


def test_aggregated_discovery() -> None:
    assert negotiate.discovery(AGGREGATED).content_type == AGGREGATED
    assert negotiate.discovery(f"application/json,{AGGREGATED}").content_type == AGGREGATED
    unknown = AGGREGATED.replace("v=v2", "v=v9")
    assert negotiate.discovery(f"{unknown},application/json").content_type == JSON
    assert negotiate.discovery(f"{unknown},application/json,{AGGREGATED}").content_type == AGGREGATED
    assert negotiate.discovery(None).content_type == JSON
    assert negotiate.plain(f"{AGGREGATED},application/json").content_type == JSON
    with pytest.raises(NotAcceptableError):
        negotiate.plain(AGGREGATED)


@pytest.mark.parametrize("accept", [None, "*/*", "text/html, */*;q=0.1", "application/json;as=Table;v=v1", YAML])
def test_routes_that_match(accept: str | None) -> None:
    negotiate.check_route(accept, lists=True)


def test_routes_that_do_not_match() -> None:
    with pytest.raises(NotAcceptableError) as caught:
        negotiate.check_route("application/xml, application/*", lists=False)
    assert str(caught.value) == f"406: Not Acceptable\n\nAvailable representations: {ALL}"
    with pytest.raises(NotAcceptableError, match="stream=watch"):
        negotiate.check_route("text/plain", lists=True)


@pytest.mark.parametrize(
    ("content_type", "media_type"),
    [
        (None, JSON),
        ("", JSON),
        ("application/json", JSON),
        ('Application/JSON; charset="utf-8"', JSON),
        ("application/yaml;", YAML),
        (PROTOBUF, PROTOBUF),
    ],
)
def test_bodies(content_type: str | None, media_type: str) -> None:
    assert negotiate.body_type(content_type) == media_type


@pytest.mark.parametrize("content_type", ["text/plain", "application/xml", "json", "application/json;=", " "])
def test_bodies_that_cannot_be_read(content_type: str) -> None:
    with pytest.raises(UnsupportedMediaTypeError) as caught:
        negotiate.body_type(content_type)
    assert str(caught.value) == (
        f"the body of the request was in an unknown format - accepted media types include: {ALL}"
    )


def test_patches() -> None:
    assert negotiate.patch_type("application/merge-patch+json; charset=utf-8") == negotiate.MERGE_PATCH
    assert negotiate.patch_type("application/strategic-merge-patch+json") == negotiate.STRATEGIC_MERGE_PATCH
    with pytest.raises(UnsupportedMediaTypeError, match=r"^415: Unsupported Media Type$"):
        negotiate.patch_type("application/json")
    with pytest.raises(UnsupportedMediaTypeError) as caught:
        negotiate.patch_type("application/strategic-merge-patch+json", custom=True)
    assert str(caught.value).endswith(
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    )


@given(st.text(st.sampled_from("application/json*;=,q0.5 \tvg"), max_size=5000))
def test_any_header_is_answered_or_rejected(accept: str) -> None:
    for function in (negotiate.resource, negotiate.watch, negotiate.discovery, negotiate.plain):
        try:
            assert function(accept).media_type in negotiate.MEDIA_TYPES
        except NotAcceptableError:
            continue
