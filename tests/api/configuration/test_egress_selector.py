"""EgressSelectorConfiguration: its errors are those that kube-apiserver v1.36 prints."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubechronicle.api.configuration import egress_selector
from kubechronicle.api.configuration.files import ConfigFileError

HEAD = {"apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration"}
INVALID = "failed to validate egress selector configuration: "
TLS = {"clientCert": "/there/c", "clientKey": "/there/k"}
UDS = {"uds": {"udsName": "/run/s"}}


def parsed(*connections: Any, **members: Any) -> egress_selector.EgressSelectorConfiguration:
    selections = [{"name": name, "connection": connection} for name, connection in connections]
    document = {**HEAD, "egressSelections": selections, **members}
    return egress_selector.parse(json.dumps(document).encode(), lambda path: path.startswith("/there"))


def https(**files: str) -> Any:
    return {"proxyProtocol": "HTTPConnect", "transport": {"tcp": {"url": "https://p:1", "tlsConfig": files}}}


def test_a_file_is_read() -> None:
    found = parsed(
        ("cluster", {"proxyProtocol": "GRPC", "transport": UDS}),
        ("ControlPlane", https(**TLS, caBundle="/there/ca", tlsServerName="n")),
        ("etcd", {"proxyProtocol": "Direct"}),
    ).egress_selections
    assert [each.name for each in found] == ["cluster", "ControlPlane", "etcd"]
    grpc, http = found[0].connection.transport, found[1].connection.transport
    assert grpc is not None
    assert grpc.uds is not None
    assert grpc.uds.uds_name == "/run/s"
    assert http is not None
    assert http.tcp is not None
    assert http.tcp.tls_config == egress_selector.TLSConfig(
        ca_bundle="/there/ca", client_cert="/there/c", client_key="/there/k", tls_server_name="n"
    )


@pytest.mark.parametrize(
    ("connection", "error"),
    [
        ({"proxyProtocol": "X"}, 'protocol: Unsupported value: "X": supported values: "Direct", "HTTPConnect", "GRPC"'),
        ({"proxyProtocol": "Direct", "transport": {}}, 'transport: Invalid value: "direct": config must be absent for'),
        ({"proxyProtocol": "GRPC"}, "transport: Required value: transport must be set for GRPC"),
        ({"proxyProtocol": "GRPC", "transport": {"tcp": {}}}, "uds: Required value: UDS must be set with GRPC"),
        ({"proxyProtocol": "GRPC", "transport": {"uds": {}}}, 'udsName: Invalid value: "nil": must be present for UDS'),
        ({"proxyProtocol": "HTTPConnect"}, "transport: Required value: transport must be set for HTTPConnect"),
        ({"proxyProtocol": "HTTPConnect", "transport": {}}, "tcp: Required value: One of TCP or UDS must be set"),
        (
            {"proxyProtocol": "HTTPConnect", "transport": {"tcp": {"url": "p:1"}}},
            'url: Invalid value: "p:1": supported connection protocols are http:// and https://',
        ),
        (
            {"proxyProtocol": "HTTPConnect", "transport": {"tcp": {"url": "http://p:1", "tlsConfig": {}}}},
            'tlsConfig: Invalid value: "nil": config must not be present when using HTTP',
        ),
        (
            {"proxyProtocol": "HTTPConnect", "transport": {"tcp": {"url": "https://p:1"}}},
            "tlsConfig: Required value: TLSConfig must be present when using HTTPS",
        ),
        (https(clientKey="/there/k"), 'tlsConfig.clientCert: Invalid value: "nil": Using TLS requires clientCert'),
        (https(**{**TLS, "clientKey": "/no"}), 'clientKey: Invalid value: "/no": TLS client key does not exist'),
        (https(**TLS, caBundle="/no"), 'caBundle: Invalid value: "/no": TLS config ca bundle does not exist'),
    ],
)
def test_wrong_connections(connection: Any, error: str) -> None:
    with pytest.raises(ConfigFileError) as raised:
        parsed(("cluster", connection))
    assert str(raised.value).startswith(f"{INVALID}service.connection.")
    assert error in str(raised.value)


def test_wrong_names() -> None:
    direct = {"proxyProtocol": "Direct"}
    with pytest.raises(ConfigFileError) as raised:
        parsed(("cluster", direct), ("Cluster", direct), ("nodes", direct))
    assert str(raised.value) == (
        f'{INVALID}[service.connection[1]: Duplicate value: "cluster", service.connection: Unsupported value: "nodes": '
        'supported values: "cluster", "controlplane", "etcd"]'
    )


@pytest.mark.parametrize(
    ("members", "error"),
    [
        ({"foo": 1}, 'strict decoding error: unknown field "foo"'),
        ({"apiVersion": "apiserver.config.k8s.io/v1beta1"}, 'no kind "EgressSelectorConfiguration" is registered'),
        (
            {"apiVersion": "apiserver.k8s.io/v1alpha1", "kind": "AdmissionConfiguration"},
            "expected EgressSelectorConfiguration, got",
        ),
        ({"kind": "AdmissionConfiguration"}, 'no kind "AdmissionConfiguration" is registered for version'),
    ],
)
def test_other_files(members: Any, error: str) -> None:
    with pytest.raises(ConfigFileError, match=error):
        parsed(**members)


def test_the_older_version() -> None:
    assert parsed(apiVersion="apiserver.k8s.io/v1alpha1").egress_selections == ()
