"""docs/settings.md from the table of flags: ``python -m kubechronicle.ops.settings.page``, or ``make docs``."""

from __future__ import annotations

from kubechronicle.ops.settings.flags import FLAGS

HEADING = """\
# Settings

Made by `make docs` from the table in `ops/settings/settings.py`.

Each can be given as a flag of `kubechronicle serve` (`--secure-port 6443`), or in the YAML file named by `--config`,
under the same name without the dashes (`secure-port: 6443`). A flag goes before the file, the file before the
environment, the environment before the default. Durations are written as `90s`, `1m30s` or `2h`. `migrate`, `verify`
and `compact` take `--database-url`, `--data-dir`, `--v` and `--config` too.

A wrong value, an unknown name or a missing file ends the command with one line that says so, and exit code 2.

| setting | default | what it does |
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
    print(page(), end="")
