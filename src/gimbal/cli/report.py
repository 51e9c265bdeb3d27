"""gimbal report: what came of runs."""

from __future__ import annotations

from collections.abc import Sequence


def report(argv: Sequence[str]) -> int:
    if len(argv) != 1:
        raise ValueError("gimbal report wants one run")
    from gimbal.api import find_run
    from gimbal.report.page import write_report

    print(write_report(find_run(argv[0])))
    return 0
