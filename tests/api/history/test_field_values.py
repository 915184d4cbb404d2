"""Values at paths as people write them."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.history.differences import canonical, differences, fields_at, has_changed, values_at

CONTAINERS = [{"name": "web", "image": "nginx:2", "args": ["-v", "x"]}, {"name": "envoy", "image": "envoy:1"}]
WEB: dict[str, Any] = {
    "metadata": {"labels": {"app": "web", "app.kubernetes.io/name": "web"}},
    "spec": {
        "replicas": 3,
        "template": {"spec": {"containers": CONTAINERS}},
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 8080}, {"port": 443, "protocol": "TCP", "tls": True}],
        "rules": [{"host": "a.b", "paths": ["/x"]}, {"host": "c", "paths": ["/y"]}],
        "limits": {"nvidia.com/gpu": "1"},
        "codes": {"404": "not found"},
    },
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
        ("/spec/replicas", [3]),
        ("/spec/template/spec/containers/1/image", ["envoy:1"]),
        ("/metadata/labels/app.kubernetes.io~1name", ["web"]),
        ("spec.template.spec.containers[image=nginx:2].name", ["web"]),
        ("spec.template.spec.containers[?(@.name=='envoy')].image", ["envoy:1"]),
        ('{.spec.template.spec.containers[?(@.name=="envoy")].image}', ["envoy:1"]),
        ("spec.ports[port=80].targetPort", [8080]),
        ("spec.ports[?(@.port==80)].targetPort", [8080]),
        ("spec.ports[port=80,protocol=TCP].targetPort", [8080]),
        ("spec.ports[tls=true].port", [443]),
        ("spec.rules[host=a.b].paths[0]", ["/x"]),
        ("spec.limits.nvidia.com/gpu", ["1"]),
        ("/spec/codes/404", ["not found"]),
        ("spec.none.at.all", []),
        ("spec.replicas.more", []),
    ],
)
def test_values(path: str, values: list[Any]) -> None:
    assert values_at(WEB, canonical(path)) == values
    assert canonical(canonical(path)) == canonical(path)
    assert [each for field in fields_at(WEB, canonical(path)) for each in values_at(WEB, field)] == values


def test_paths_of_values_have_the_keys_of_items() -> None:
    assert fields_at(WEB, "spec.ports[0].port") == ["spec.ports[port=80,protocol=TCP].port"]
    assert fields_at(WEB, "spec.limits.nvidia.com/gpu") == ["spec.limits[nvidia.com/gpu]"]


def test_each_state_resolves_a_position() -> None:
    web, proxy = {"name": "web", "image": "web:1"}, {"name": "proxy", "image": "proxy:1"}
    assert has_changed({"c": [web]}, {"c": [proxy, web]}, "c[0].image")
    assert not has_changed({"c": [web]}, {"c": [proxy, web]}, "c[name=web].image")
    assert not has_changed({"c": [web]}, {"c": [web, proxy]}, "c[0].image")
    assert has_changed({"c": [web]}, {}, "c[0].image")


@pytest.mark.parametrize("path", ["", ".", "/", "a..b", "a[b", "a]", "/a//b", ".a" * 101])
def test_no_path(path: str) -> None:
    with pytest.raises(ValueError, match="is no path of a field"):
        canonical(path)


def test_what_changed_is_found_at_the_path_that_is_told() -> None:
    before = {"metadata": {"annotations": {"a.b/c": "1", "d": "2"}}, "data": {"x.conf": "1"}, "l": [{"name": "a"}]}
    item = {"name": "a", "v": 1}
    after = {"metadata": {"annotations": {"a.b/c": "2", "d": "3"}}, "data": {"x.conf": "2"}, "l": [item]}
    for one in differences(before, after):
        assert values_at(after, canonical(one.field)) == [one.new]
