"""The completion scripts and the manual page in ops/install/share are those of the present commands."""

from __future__ import annotations

from kubechronicle.ops.development import shell_files


def test_the_files_for_shells_are_up_to_date() -> None:
    assert shell_files.main(["--check"]) == 0, "run `make docs`"


def test_a_command_with_dashes_is_escaped_in_the_manual() -> None:
    assert ".B can\\-i\n" in shell_files.manual()
