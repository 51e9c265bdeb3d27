"""Where a method may differ from what the harness asks of all, and why: {class: {test: reason}}."""

EXCEPTIONS: dict[str, dict[str, str]] = {}
