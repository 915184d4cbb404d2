"""Values at paths as people write them."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.history.differences import differences
from kubechronicle.api.history.field_values import canonical, values_at

CONTAINERS = [{"name": "web", "image": "nginx:2", "args": ["-v", "x"]}, {"name": "envoy", "image": "envoy:1"}]
WEB: dict[str, Any] = {
    "metadata": {"labels": {"app": "web", "app.kubernetes.io/name": "web"}},
    "spec": {"replicas": 3, "template": {"spec": {"containers": CONTAINERS}}},
}


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("spec.replicas", [3]),
        (".spec.replicas", [3]),
        ("{.spec.replicas}", [3]),
        ("$.spec.replicas", [3]),
        ("spec.template.spec.containers[name=web].image", ["nginx:2"]),
        ("spec.template.spec.containers[name=web].args[1]", ["x"]),
        ("spec.template.spec.containers.image", ["nginx:2", "envoy:1"]),
        ("spec.template.spec.containers[*].image", ["nginx:2", "envoy:1"]),
        ("spec.template.spec.containers[1].image", ["envoy:1"]),
        ("spec.template.spec.containers[name=none].image", []),
        ("metadata.labels[app.kubernetes.io/name]", ["web"]),
        ("metadata.labels['app.kubernetes.io/name']", ["web"]),
        ("metadata.labels.app.kubernetes.io/name", ["web"]),
        (r"metadata.labels.app\.kubernetes\.io/name", ["web"]),
        ("metadata.labels.app", ["web"]),
        ("spec.none.at.all", []),
        ("spec.replicas.more", []),
    ],
)
def test_values(path: str, values: list[Any]) -> None:
    assert values_at(WEB, canonical(path)) == values


@pytest.mark.parametrize("path", ["", ".", "a..b", "a[b", "a]"])
def test_no_path(path: str) -> None:
    with pytest.raises(ValueError, match="is no path of a field"):
        canonical(path)


def test_what_changed_is_found_at_the_path_that_is_told() -> None:
    before = {"metadata": {"annotations": {"a.b/c": "1", "d": "2"}}, "data": {"x.conf": "1"}, "l": [{"name": "a"}]}
    item = {"name": "a", "v": 1}
    after = {"metadata": {"annotations": {"a.b/c": "2", "d": "3"}}, "data": {"x.conf": "2"}, "l": [item]}
    for one in differences(before, after):
        assert values_at(after, canonical(one.field)) == [one.new]
