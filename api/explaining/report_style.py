"""The style of a report's HTML file (reports.py), within the file."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root { color-scheme: light dark; --text: light-dark(#1b1f24, #e4e7eb); --faint: light-dark(#57606a, #9ca5b0);
  --line: light-dark(#d5dae0, #363c45); --raised: light-dark(#f5f6f8, #1c2026); --good: light-dark(#1a6b34, #6fd08c);
  --bad: light-dark(#b3261e, #ff9b93); --warn: light-dark(#8a5300, #f0b95c); }
body { margin: 0; background: light-dark(#ffffff, #121519); color: var(--text);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1000px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 22px; } h2 { font-size: 17px; margin-top: 28px; } p { margin: 4px 0; overflow-wrap: anywhere; }
svg { width: 100%; border: 1px solid var(--line); border-radius: 10px; margin: 14px 0; }
svg line { stroke: var(--line); } svg text { font-size: 12px; fill: var(--faint); }
rect.create { fill: var(--good); } rect.update { fill: var(--warn); } rect.delete { fill: var(--bad); }
ol { padding-left: 24px; } ol > li { border-bottom: 1px solid var(--line); padding: 10px 0; }
.deed::before { content: "●"; margin-right: 8px; color: var(--warn); }
.deed.create::before { color: var(--good); } .deed.delete::before { color: var(--bad); }
.faint, small, time { color: var(--faint); } .quote { font-style: italic; } .warn { color: var(--warn); }
code { font: 12.5px ui-monospace, "DejaVu Sans Mono", Consolas, monospace; background: var(--raised);
  border-radius: 4px; padding: 1px 4px; overflow-wrap: anywhere; }
pre { overflow: auto; padding: 10px; border: 1px solid var(--line); border-radius: 8px; font: 12.5px ui-monospace,
  "DejaVu Sans Mono", Consolas, monospace; } ins, del { text-decoration: none; color: var(--good); }
del { color: var(--bad); }
.reasons span { display: inline-block; border: 1px solid var(--line); border-radius: 10px; padding: 0 9px;
  margin: 2px 5px 2px 0; font-size: 12.5px; color: var(--warn); }
summary { cursor: pointer; } details ul { list-style: none; padding-left: 10px; border-left: 2px solid var(--line); }
details li { overflow-wrap: anywhere; } .d2 { padding-left: 16px; } .d3 { padding-left: 32px; }
.d4 { padding-left: 48px; } .d5, .d6, .d7, .d8 { padding-left: 64px; }
table { border-collapse: collapse; width: 100%; font-size: 13px; } th, td { text-align: left; vertical-align: top;
  padding: 4px 10px 4px 0; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
@media print { details::details-content { content-visibility: visible; display: block; } }
"""
