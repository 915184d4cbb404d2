"""Objects of a write in the version of a rule."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from kubechronicle.actors.admission.chain import Attributes
from kubechronicle.actors.admission.versions import Versions
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.registry.registry import known_registry


def test_a_patch_in_another_version_keeps_the_fields_that_this_version_lacks() -> None:
    """PodCertificateRequests of v1 have neither pkixPublicKey nor proofOfPossession."""
    types = {rt.version: rt for rt in known_registry() if rt.plural == "podcertificaterequests"}
    spec = {"podName": "a", "pkixPublicKey": "AA==", "proofOfPossession": "AA==", "nodeName": "n"}
    held: dict[str, Any] = {
        "apiVersion": "certificates.k8s.io/v1beta1", "kind": "PodCertificateRequest",
        "metadata": {"name": "one", "namespace": "default"}, "spec": spec,
    }  # fmt: skip
    attributes = SimpleNamespace(rt=types["v1beta1"], object=held, old=None, subresource="", requested=None)
    versions = Versions(cast(Attributes, attributes), stored=False)
    seen = copy_object(versions.new(types["v1"]))
    assert "pkixPublicKey" not in seen["spec"]
    seen["metadata"]["labels"] = {"a": "b"}
    seen["spec"]["podName"] = "b"
    del seen["spec"]["nodeName"]
    versions.replace(types["v1"], seen)
    assert held["apiVersion"] == "certificates.k8s.io/v1beta1"
    assert held["metadata"]["labels"] == {"a": "b"}
    wanted = {"podName": "b", "pkixPublicKey": "AA==", "proofOfPossession": "AA=="}
    assert {name: value for name, value in held["spec"].items() if value} == wanted
