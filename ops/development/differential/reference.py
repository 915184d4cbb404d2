"""The two servers of a run: a real kube-apiserver with etcd, and a kubechronicle with the same settings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from kubechronicle.ops.development.differential.transport import Target


class Unavailable(Exception):
    """There is no kube-apiserver to compare with; the message says why."""


@contextlib.contextmanager
def reference_server() -> Iterator[Target]:
    raise Unavailable("give --reference URL")
    yield


@contextlib.contextmanager
def our_server() -> Iterator[Target]:
    raise Unavailable("give --ours URL")
    yield
