"""The order of elements in managedFields. Clients compare the bytes of answers in JSON and in protobuf."""

from __future__ import annotations

import json
import random
from typing import Any

from kubechronicle.api.managed_fields import field_sets
from kubechronicle.api.managed_fields.path_elements import in_order, order_of
from kubechronicle.api.patch import typed_readers, typed_values
from kubechronicle.api.schema import types

POD = types.object_type("io.k8s.api.core.v1.Pod")


def pod(*, labels: dict[str, str], ports: list[int], **spec: Any) -> dict[str, Any]:
    made = [{"containerPort": number, "protocol": "TCP"} for number in ports]
    container = {"name": "c", "image": "i", "command": ["sh"], "args": ["-c"], "ports": made}
    metadata = {"name": "p", "labels": labels, "finalizers": ["b.io/b", "a.io/a"]}
    return {"spec": {"restartPolicy": "Always", **spec, "containers": [container]}, "metadata": metadata}


def elements(fields: Any, *path: str) -> list[str]:
    for element in path:
        fields = fields[element]
    return list(fields)


CONTAINER = ("f:spec", "f:containers", 'k:{"name":"c"}')


def test_a_new_object_has_its_fields_in_order() -> None:
    new = pod(labels={"z": "1", "a": "2"}, ports=[8080, 443, 80], hostname="h")
    changed, _ = field_sets.compare(POD.zero(), new, POD)
    assert elements(changed) == ["f:metadata", "f:spec"]
    assert elements(changed, "f:metadata", "f:labels") == [".", "f:a", "f:z"]
    assert elements(changed, "f:metadata", "f:finalizers") == [".", 'v:"a.io/a"', 'v:"b.io/b"']
    assert elements(changed, "f:spec") == ["f:containers", "f:hostname", "f:restartPolicy"]
    assert elements(changed, *CONTAINER) == [".", "f:args", "f:command", "f:image", "f:name", "f:ports"]
    ports = elements(changed, *CONTAINER, "f:ports")
    assert ports == [".", *(f'k:{{"containerPort":{port},"protocol":"TCP"}}' for port in (80, 443, 8080))]


def test_added_fields_are_put_in_order() -> None:
    held, _ = field_sets.compare(POD.zero(), pod(labels={"m": "1"}, ports=[443]), POD)
    later = pod(labels={"m": "1", "z": "1", "a": "1"}, ports=[443, 9, 80], hostname="h")
    more, _ = field_sets.compare(pod(labels={"m": "1"}, ports=[443]), later, POD)
    both = field_sets.union(held, more)
    assert elements(both, "f:metadata", "f:labels") == [".", "f:a", "f:m", "f:z"]
    assert elements(both, "f:spec") == ["f:containers", "f:hostname", "f:restartPolicy"]
    ports = elements(both, *CONTAINER, "f:ports")
    assert ports == [".", *(f'k:{{"containerPort":{port},"protocol":"TCP"}}' for port in (9, 80, 443))]


def test_the_set_of_a_configuration_is_in_order() -> None:
    spec = {"hostname": "h", "affinity": {"podAffinity": {}, "nodeAffinity": {}}}
    config = pod(labels={"z": "1", "a": "2"}, ports=[8080, 443, 80], **spec)
    claim = {"spec": {"resources": {"requests": {"storage": "1Gi", "b": "1"}, "limits": {}}, "accessModes": ["b", "a"]}}
    for kind, given in ((POD, config), (types.object_type("io.k8s.api.core.v1.PersistentVolumeClaim"), claim)):
        read, walked = typed_readers.read(given, kind), typed_values.field_set(given, kind)
        assert json.dumps(read) == json.dumps(walked) == json.dumps(_sorted(walked))


def _sorted(fields: Any) -> Any:
    return {element: _sorted(below) for element, below in in_order(fields).items()}


def test_every_set_is_in_the_order_of_its_values() -> None:
    letters = ["a", "b", "-", ".", "1", "0", "A", "é", " ", "!", "#", '"', "\\", "<", "k:{", '":"', "\t"]
    choose = random.Random(7)

    def name() -> str:
        return "".join(choose.choices(letters[: choose.choice((7, 8, len(letters)))], k=choose.randint(0, 4)))

    def element() -> str:
        keys: dict[str, Any] = {"name": name()}
        if choose.random() < 0.02:
            keys = choose.choice(({"name": 3}, {"port": 80, "name": name()}, {"other": name()}))
        elif choose.random() < 0.02:
            return choose.choice((f"v:{json.dumps(name())}", "i:3", f"f:x{name()}"))
        return f"k:{json.dumps(keys, separators=(',', ':'), ensure_ascii=False)}"

    for _ in range(3000):
        elements = [element() for _ in range(choose.randint(1, 5))] + ["."] * choose.randint(0, 1)
        found = in_order({each: {} for each in elements})
        assert list(found) == sorted(dict.fromkeys(elements), key=order_of), elements
