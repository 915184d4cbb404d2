"""The first message from parent to worker: a worker gets exactly the settings of its parent."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from kubechronicle.ops.addresses import ListenAddresses
from kubechronicle.ops.server.worker_messages import StartMessage, receive_start
from kubechronicle.ops.settings import settings

# Every type of setting with a value that differs from its default.
FLAGS: dict[str, Any] = {
    "bind-address": "::1",
    "advertise-address": "10.1.2.3",
    "external-hostname": "api.example.com",
    "tls-cert-file": __file__,
    "tls-private-key-file": __file__,
    "enable-ui": "true",
    "authentication-token-webhook-version": "v1",
    "authentication-token-webhook-cache-ttl": "1m30s",
    "service-account-issuer": "https://new,https://old",
    "service-account-key-file": f"{__file__},{__file__}",
    "oidc-required-claim": ["hd=a,b", "tenant="],
    "anonymous-auth": "false",
    "authorization-mode": "Node,RBAC",
    "database-url": "postgresql://jane:secret@db/kubechronicle",
    "workers": "3",
    "service-cluster-ip-range": "10.0.0.0/24,fd00::/108",
    "service-node-port-range": "31000-31010",
    "runtime-config": "batch/v1beta1=true,v1",
    "controllers": "*,-namespace",
    "event-ttl": "500ms",
}


def transmit(message: StartMessage) -> StartMessage:
    parent, worker = socket.socketpair()
    with parent, worker:
        parent.sendall(message.to_bytes())
        return receive_start(worker)


@pytest.mark.parametrize("flags", [{}, FLAGS], ids=["defaults", "everything"])
def test_a_message_arrives_as_it_was_sent(flags: dict[str, Any]) -> None:
    message = StartMessage(
        settings=settings.load(flags, environment={}),
        addresses=ListenAddresses(host="::1", port=6443, advertised=ip_address("fd00::1"), url="https://[::1]:6443"),
        number=2,
        listeners=(7, 8),
        siblings=(9,),
    )
    received = transmit(message)
    assert received == message
    assert isinstance(received.settings.data_dir, Path)
    assert isinstance(received.settings.service_account_issuer, tuple)


def test_a_parent_that_has_ended_is_reported() -> None:
    parent, worker = socket.socketpair()
    with worker:
        parent.close()
        with pytest.raises(EOFError, match="the parent process has ended"):
            receive_start(worker)
