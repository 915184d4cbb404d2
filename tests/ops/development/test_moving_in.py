"""A kube-apiserver with etcd, which a controller writes to, is moved in without a difference."""

from __future__ import annotations

import pytest

from kubechronicle.ops.development import moving_in
from kubechronicle.ops.development.differential import reference


@pytest.mark.skipif(not (reference.CACHE / "kube-apiserver").is_file(), reason="no kube-apiserver was built")
def test_a_small_cluster_is_moved_in_while_it_is_written_to(capfd: pytest.CaptureFixture[str]) -> None:
    assert moving_in.main(["--objects", "100"]) == 0
    assert capfd.readouterr().out.count("no difference") == 2
