"""docs/settings.md, made from the tables of flags: ``python -m kubechronicle.ops.settings.page``, or ``make docs``."""

from __future__ import annotations

from kubechronicle.ops import terminal
from kubechronicle.ops.settings.flags import FLAGS

HEADING = """\
# Settings

Made by `make docs` from the tables in `ops/settings/flags`.

A setting is a flag of `kubechronicle serve` (`--secure-port 6443`), or a key of the YAML file named by `--config`,
without the dashes (`secure-port: 6443`). A flag overrides the file, the file overrides the environment, and the
environment overrides the default. Durations are written as `90s`, `1m30s` or `2h`. The commands on the database
(`migrate`, `verify`, `compact` and others) have `--database-url`, `--data-dir`, `--v` and `--config` too.

After a wrong value, an unknown name or a missing file, the command prints one line about it and exits with code 2.

| setting | default | meaning |
|---|---|---|
"""


def page() -> str:
    rows = []
    for flag in FLAGS:
        environment = f" Environment: `{flag.environment}`." if flag.environment else ""
        default = f"`{flag.default}`" if flag.default else ""
        text = (flag.help + environment).replace("|", "\\|")
        rows.append(f"| `--{flag.name} {flag.placeholder}` | {default} | {text} |\n")
    return HEADING + "".join(rows)


if __name__ == "__main__":
    terminal.stdout().lines(page())
