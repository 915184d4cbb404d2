"""Replays of recorded conversations: the totals are read from the replay's last lines, and failures count."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubechronicle.ops.development import conformance
from kubechronicle.ops.development.conformance import Area, NotReplayed, Totals
from kubechronicle.ops.development.server_process import StartError


def test_totals_are_the_last_lines() -> None:
    output = "FAIL reads x\nreads: 3 core passed, 1 failed\nstrict: 2 passed, 2 failed\ncore: 3 passed, 1 failed\n"
    assert conformance.parse(output) == Totals(core=3, strict=2, cases=4)


def test_a_replay_without_its_end_is_an_error() -> None:
    with pytest.raises(NotReplayed, match="Traceback"):
        conformance.parse("Traceback")


def test_without_a_folder_there_is_nothing_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert conformance.main([str(tmp_path)]) == 0
    assert "nothing to replay" in capsys.readouterr().out


def test_an_area_that_cannot_be_replayed_counts_as_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "replay.py").touch()
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "good.yaml").write_text("- name: a\n")
    (tmp_path / "cases" / "bad.yaml").write_text("- name: a\n- name: b\n")

    def replay(area: Area, _serve: object, _arguments: object) -> tuple[Totals, str]:
        if area.name == "bad":
            raise StartError("the server ended")
        return Totals(core=1, strict=1, cases=1), "no differences"

    monkeypatch.setattr(conformance, "replay_area", replay)
    assert conformance.main([str(tmp_path), "--details", str(tmp_path / "details")]) == 1
    output = capsys.readouterr().out
    assert "bad            not replayed: the server ended" in output
    assert "core    1/3     33.3 %" in output
    assert "== good\nno differences" in (tmp_path / "details").read_text()
    assert conformance.main([str(tmp_path), "nonesuch"]) == 2


def test_a_later_kubernetes_has_answers_and_cases_of_its_own(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name / "cases").mkdir(parents=True)
    (tmp_path / "old/cases/reads.yaml").write_text("- name: a\n")
    (tmp_path / "new/cases/gates.yaml").write_text(
        "# With --authorization-mode RBAC and\n#   --feature-gates=A=true --runtime-config=api/all=true\n- name: b\n"
    )
    areas = conformance.areas_of(tmp_path / "old", tmp_path / "new")
    assert list(areas) == ["gates", "reads"]
    assert areas["gates"].flags() == ["--feature-gates=A=true", "--runtime-config=api/all=true"]
    assert areas["reads"].flags() == []
    assert {area.expected for area in areas.values()} == {tmp_path / "new/expected"}
    assert {area.tools for area in areas.values()} == {tmp_path / "old"}
