"""`kubechronicle history`: what it says to an operator's mistakes. What it does to a log is tested beside the log."""

from __future__ import annotations

import pytest

from kubechronicle.ops import cli
from kubechronicle.ops.exit_codes import MISTAKE


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["confidential", "--remove", "secrets"], "--remove: secrets are always confidential"),
        (["confidential", "--add", "Vault!"], "'Vault!' is no resource; name it as pods"),
        (["confidential", "--data-dir", "/none"], "there is no database in /none"),
    ],
)
def test_mistakes_are_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    assert cli.main(["history", *arguments]) == MISTAKE
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert said in told.err
