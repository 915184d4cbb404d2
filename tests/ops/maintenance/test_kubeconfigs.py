"""Contexts for a past moment: written ones, untouched ones, rejected ones."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubechronicle.ops import cli
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.maintenance.kubeconfigs import add_context, resolve_moment

NOW = datetime(2026, 1, 31, 12, 0, 0, 500, tzinfo=UTC)


def kubeconfig() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "work", "cluster": {"server": "https://host:6443/proxy/", "certificate-authority-data": "Q0E="}},
            {"name": "home", "cluster": {"server": "https://home"}},
        ],
        "users": [{"name": "jane", "user": {"token": "t"}}],
        "contexts": [
            {"name": "work", "context": {"cluster": "work", "user": "jane", "namespace": "shop"}},
            {"name": "home", "context": {"cluster": "home", "user": "jane"}},
        ],
        "current-context": "work",
        "preferences": {},
    }


@pytest.mark.parametrize(
    ("text", "moving", "expected"),
    [
        ("2h", False, "2026-01-31T10:00:00Z"),
        ("-2h", False, "2026-01-31T10:00:00Z"),
        ("1w", False, "2026-01-24T12:00:00Z"),
        ("2h", True, "-2h"),
        ("-2h", True, "-2h"),
        ("12345", False, "12345"),
        ("2026-01-31T09:30:00.25+02:00", False, "2026-01-31T07:30:00.25Z"),
        ("2026-01-30", False, "2026-01-30T00:00:00Z"),
    ],
)
def test_a_moment_is_resolved(text: str, moving: bool, expected: str) -> None:
    assert resolve_moment(text, now=NOW, moving=moving) == expected


def test_a_context_is_added() -> None:
    before, document = kubeconfig(), kubeconfig()
    add_context(document, "at-2h", "2026-01-31T10:00:00Z")
    assert document["clusters"][:2] == before["clusters"]
    assert document["clusters"][2] == {
        "name": "at-2h",
        "cluster": {
            "server": "https://host:6443/proxy/history/at/2026-01-31T10:00:00Z",
            "certificate-authority-data": "Q0E=",
        },
    }
    assert document["contexts"][2] == {
        "name": "at-2h",
        "context": {"cluster": "at-2h", "user": "jane", "namespace": "shop"},
    }
    unchanged = ("users", "current-context", "preferences")
    assert [document[name] for name in unchanged] == [before[name] for name in unchanged]


def test_a_context_replaces_one_of_the_same_name() -> None:
    document = kubeconfig()
    add_context(document, "then", "7")
    document["current-context"] = "then"  # also where the current context shows history itself
    add_context(document, "then", "41")
    assert [cluster["cluster"]["server"] for cluster in document["clusters"]][2:] == [
        "https://host:6443/proxy/history/at/41"
    ]
    assert [context["name"] for context in document["contexts"]] == ["work", "home", "then"]


@pytest.mark.parametrize(
    "changes",
    [{"current-context": ""}, {"current-context": "none"}, {"clusters": []}, {"contexts": None}, {"clusters": "x"}],
)
def test_a_kubeconfig_without_a_current_cluster_is_rejected(changes: dict[str, Any]) -> None:
    with pytest.raises(OperatorError, match="no current context with a cluster"):
        add_context(kubeconfig() | changes, "then", "41")


def test_the_file_is_written_in_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    real, link = tmp_path / "real", tmp_path / "config"
    real.write_text(yaml.safe_dump(kubeconfig()))
    real.chmod(0o640)
    link.symlink_to(real)
    assert cli.main(["kubeconfig", "--at", "41", "--kubeconfig", str(link), "--context-name", "then"]) == 0
    assert f"try: kubectl --kubeconfig {link} --context then get pods -A" in capsys.readouterr().out
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert yaml.safe_load(real.read_text())["contexts"][2]["name"] == "then"
    (tmp_path / "admin.kubeconfig").write_text(yaml.safe_dump(kubeconfig()))
    assert cli.main(["kubeconfig", "--at", "-2h", "--data-dir", str(tmp_path)]) == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    assert [context["name"] for context in printed["contexts"]] == ["work", "home", "at-2h"]
