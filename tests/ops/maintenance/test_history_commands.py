"""`kubechronicle history`: the reports of mistakes. tests/eventlog tests its effects on a log."""

from __future__ import annotations

import pytest

from kubechronicle.ops import cli
from kubechronicle.ops.exit_codes import MISTAKE


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["confidential", "--remove", "secrets"], "--remove: secrets are always confidential"),
        (["confidential", "--add", "Vault!"], "'Vault!' is no resource; name it as pods"),
        (["confidential", "--data-dir", "/none"], "there is no database in /none"),
    ],
)
def test_mistakes_are_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert cli.main(["history", *arguments]) == MISTAKE
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert message in output.err
