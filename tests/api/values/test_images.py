"""Names of container images."""

from __future__ import annotations

import pytest

from kubechronicle.api.values.names import tag_of

DIGEST = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("image", "tag"),
    [
        ("nginx", "latest"),
        ("nginx:1.25", "1.25"),
        ("nginx:latest", "latest"),
        ("registry.example.com:5000/team/app", "latest"),
        ("localhost/app:v1", "v1"),
        ("Registry/app", "latest"),
        ("[::1]:5000/app", "latest"),
        ("a__b/c-d", "latest"),
        (f"nginx@sha256:{DIGEST}", ""),
        (f"nginx:latest@sha256:{DIGEST}", "latest"),
    ],
)
def test_the_tag_of_an_image(image: str, tag: str) -> None:
    assert tag_of(image) == tag


@pytest.mark.parametrize(
    "image",
    [
        *("", "Nginx", "nginx:", "nginx:-a", "nginx@sha256:x", f"nginx@sha1:{DIGEST[:40]}", "a//b", "a b", "a-", "-a"),
        *("a___b", DIGEST, "x" * 250, "localhost/" + "x" * 256, f"nginx@sha256:{DIGEST.upper()}", "nginx:1 "),
    ],
)
def test_a_name_that_cannot_be_parsed_has_no_tag(image: str) -> None:
    assert tag_of(image) == ""
