"""Exit codes of every command.

0  done, or stopped by a signal
1  failed; or a check found a problem, such as edited history
2  an operator can fix it; one line on stderr says how
"""

from __future__ import annotations

OK, FAILED, MISTAKE = 0, 1, 2
