"""The command line: one line and exit code 2 for a mistake, and a server that starts and stops."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from starting.forks import FORKS

from kubechronicle.ops import cli
from kubechronicle.ops.client.command_table import COMMANDS as CLIENT_COMMANDS
from kubechronicle.ops.command_groups import GROUPS
from kubechronicle.ops.commands import COMMANDS
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.exit_codes import MISTAKE, OK
from kubechronicle.ops.maintenance.log_commands import parse_anchors
from kubechronicle.ops.postgres.cluster import socket_url

COMMAND = str(Path(sys.executable).with_name("kubechronicle"))
PATIENCE = 60.0


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return FORKS.run([COMMAND, *arguments], timeout=PATIENCE)


def mistake(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the one line that reports a mistake."""
    assert cli.main(arguments) == MISTAKE
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    return output.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dance"], "unknown command 'dance'; `kubechronicle --help` lists the commands"),
        (["migate"], "unknown command 'migate'; did you mean 'migrate'?"),
        (["serve", "--data-dir", "/proc/none"], "--data-dir /proc/none: No such file or directory; choose a directory"),
        (
            ["verify", "--database-url", "postgresql://u:secret@none.invalid/x"],
            "no connection to Postgres: none.invalid: ",
        ),
        (["serve", "--secure-prt", "1"], "unknown flag --secure-prt; did you mean '--secure-port'"),
        (["kubeconfig", "--secure-port", "1"], "unknown flag --secure-port; `kubechronicle serve` has --secure-port"),
        (["serve", "--secure-port"], "--secure-port: expected one argument"),
        (["serve", "--secure-port", "many"], "--secure-port: must be a port"),
        (["serve", "--config", "/none"], "--config: cannot read /none"),
        (["serve", "--controllers", "nonesuch", "--secure-port", "0"], "no control loop 'nonesuch'"),
        (["serve", "--controllers", "-nonesuch", "--secure-port", "0"], "no control loop 'nonesuch'"),
        (["serve", "--authorization-mode", "Magic", "--secure-port", "0"], "must be one of AlwaysAllow, AlwaysDeny, "),
        (["serve", "--authorization-mode", "RBAC,RBAC", "--secure-port", "0"], "RBAC is listed twice"),
        (["serve", "--disable-admission-plugins", "Nonesuch", "--secure-port", "0"], "no admission plugin 'Nonesuch'"),
        (["serve", "--runtime-config", "apps/v9=true", "--secure-port", "0"], "group version apps/v9 that has"),
        (["serve", "--runtime-config", "v1", "--runtime-config", "x/v1", "--secure-port", "0"], "unknown api groups x"),
        (["convert"], "the following arguments are required: --to"),
        (["verify", "--data-dir", "/none"], "there is no database in /none; name its --data-dir"),
        (["verify", "--anchor", "x"], "--anchor: must be REVISION:HASH"),
        (["verify", "--database-url", "postgresql://u:secret@127.0.0.1:1/x"], "no connection to Postgres"),
        (["serve", "--tls-cert-file", __file__, "--tls-private-key-file", __file__], "no certificate (PEM) and its"),
        (["serve", "--client-ca-file", __file__], "holds no certificates (PEM)"),
        (["serve", "--root-ca-file", __file__], "--root-ca-file: "),
        (["compact"], "one of the arguments --revision --keep is required"),
        (["compact", "--keep", "1 week"], "--keep: must be a duration"),
        (["kubeconfig", "--user", "jane", "--data-dir", "/none"], "there is no authority in /none/pki"),
        (["kubeconfig"], "name a user with --user, or a moment of history with --at"),
        (["kubeconfig", "--user", "jane", "--moving"], "--moving goes with --at"),
        (["kubeconfig", "--at", "-2h", "--data-dir", "/none"], "there is no /none/admin.kubeconfig; name its"),
        (["kubeconfig", "--at", "someday"], "--at: 'someday' is no moment; name a revision (12345), a time"),
        (["kubeconfig", "--at", "9999-01-01"], "--at: 9999-01-01 lies in the future"),
        (["kubeconfig", "--at", "12345", "--moving"], "--moving goes with how long ago, as in --at 2h"),
        (["kubeconfig", "--at", "2h", "--kubeconfig", __file__], "test_cli.py is no kubeconfig"),
    ],
)
def test_mistakes_are_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    line = mistake(capsys, *arguments)
    assert message in line
    assert "secret" not in line


def test_an_invalid_token_file_is_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text("only-a-token\n")
    arguments = ["serve", "--data-dir", str(tmp_path / "data"), "--secure-port", "0", "--token-auth-file", str(tokens)]
    line = mistake(capsys, *arguments)
    assert "--token-auth-file:" in line
    assert "line 1" in line
    assert "only-a-token" not in line
    assert not (tmp_path / "data").exists()


def test_a_port_in_use_is_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        where = ["--bind-address", "127.0.0.1", "--secure-port", str(port), "--data-dir", str(tmp_path / "data")]
        assert f"port {port} of 127.0.0.1 is in use" in mistake(capsys, "serve", *where)


def test_an_address_of_another_machine_is_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    where = ["--bind-address", "203.0.113.77", "--data-dir", str(tmp_path / "data")]
    assert "203.0.113.77 is not an address of this machine" in mistake(capsys, "serve", *where)


def test_version() -> None:
    answer = run("version")
    assert re.fullmatch(r"kubechronicle \d+\.\d+\.\d+ \(Kubernetes v1\.37 API, .*\)\n", answer.stdout)


def test_anchors() -> None:
    assert parse_anchors([f"7:{'ab' * 32}"]) == {7: b"\xab" * 32}
    with pytest.raises(OperatorError):
        parse_anchors(["7:ab"])


def start(data_dir: Path, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    """Start a server. Return it and its ready line."""
    command = [COMMAND, "serve", "--data-dir", str(data_dir), "--bind-address", "127.0.0.1", "--secure-port", "0"]
    log = data_dir.with_suffix(".log").open("a")
    process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline()


def test_the_life_of_a_server(tmp_path: Path) -> None:
    """Start, reject a second server, verify while it runs, drain on SIGTERM, verify after its end."""
    data = tmp_path / "data"
    process, ready = start(data)
    try:
        kubeconfig = re.escape(str(data / "admin.kubeconfig"))
        command = f"kubectl --kubeconfig {kubeconfig} get namespaces"
        line = re.fullmatch(rf"kubechronicle is ready at (https://127\.0\.0\.1:\d+); try: {command}\n", ready)
        assert line, ready
        assert line[1] in (data / "admin.kubeconfig").read_text()

        second = run("serve", "--data-dir", str(data), "--secure-port", "0")
        assert (second.returncode, second.stderr.count("\n")) == (2, 1)
        assert f"is in use by process {process.pid}" in second.stderr
        url, elsewhere = socket_url(data / "postgres"), str(tmp_path / "elsewhere")
        second = run("serve", "--database-url", url, "--data-dir", elsewhere, "--secure-port", "0")
        assert second.returncode == 2
        expected = "kubechronicle: this database is embedded in another server, which alone appends to it: "
        assert second.stderr.splitlines()[-1].startswith(expected)

        verified = run("verify", "--data-dir", str(data))
        assert verified.returncode == 0, verified.stderr
        anchor = re.search(r"anchor (\d+:[0-9a-f]{64})", verified.stdout)
        assert anchor

        jane = run("kubeconfig", "--data-dir", str(data), "--user", "jane")
        assert line[1] in jane.stdout
    finally:
        process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    assert process.wait(PATIENCE) == 0
    assert time.monotonic() - began < 20
    assert not (data / "postgres" / "postmaster.pid").exists()

    again = run("verify", "--data-dir", str(data), "--anchor", anchor[1])
    assert again.returncode == 0, again.stderr
    wrong = run("verify", "--data-dir", str(data), "--anchor", anchor[1].partition(":")[0] + ":" + "00" * 32)
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("I") or "revision" in wrong.stderr
    assert "applied now" in run("migrate", "--data-dir", str(data)).stdout
    assert "the newest revision is" in run("compact", "--data-dir", str(data), "--keep", "0s").stdout


def test_a_signal_during_the_start_stops_the_server(tmp_path: Path) -> None:
    data = tmp_path / "data"
    command = [COMMAND, "serve", "--data-dir", str(data), "--secure-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        while not (data / "postgres.lock").exists() and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    assert not (data / "postgres" / "postmaster.pid").exists()


def test_a_killed_server_starts_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for _ in range(3):
        process, ready = start(data)
        assert "is ready at" in ready
        process.kill()
        process.wait()
    verified = run("verify", "--data-dir", str(data))
    assert verified.returncode == 0, verified.stderr


def test_every_command_is_in_one_group_of_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    listed = [name for names in GROUPS.values() for name in names]
    assert sorted(listed) == sorted([*COMMANDS, *CLIENT_COMMANDS])
    assert cli.main([]) == OK
    output = capsys.readouterr().out
    assert output.startswith("usage: kubechronicle COMMAND [flags]")
    assert [line[:-1] for line in output.splitlines() if line[:-1] in GROUPS] == [*GROUPS]
    assert all(f"\n  {name} " in output for name in listed)
