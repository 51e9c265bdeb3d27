"""gimbal env: versions, for a bug report."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gimbal.cli.words import table


def environment(argv: Sequence[str]) -> int:
    """Collects nothing private: no paths, names or addresses."""
    if list(argv) == ["--help"]:
        print(
            "gimbal env [--sandbox]\n\nPrints the versions of gimbal and its dependencies, and the machine, for a bug report.\n\n"
            "--sandbox  attack each sandbox instead, with limits, and print which attacks it stopped (docs/isolation.md)"
        )
        return 0
    if list(argv) == ["--sandbox"]:
        table(_sandboxes())
        return 0
    if argv:
        raise ValueError(f"gimbal env takes no arguments but --sandbox; got {' '.join(argv)}")
    import platform
    from importlib.metadata import PackageNotFoundError, version

    import torch

    import gimbal

    facts = {
        "gimbal": gimbal.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }
    for package in (
        "torch",
        "transformers",
        "reasoning-gym",
        "numpy",
        "safetensors",
        "gymnasium",
        "peft",
        "vllm",
        "ray",
    ):
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "not installed"
    facts["cores"] = f"{os.cpu_count()} ({len(os.sched_getaffinity(0))} usable)"
    facts["threads"] = str(torch.get_num_threads())
    found = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    facts["gpu"] = f"{', '.join(found)} (CUDA {torch.version.cuda})" if found else "none"
    table(facts)
    return 0


def _sandboxes() -> dict[str, str]:
    """Each sandbox with how many of the ten attacks it stopped."""
    from gimbal.sandbox.live import SandboxError
    from gimbal.sandbox.monty import Monty
    from gimbal.sandbox.processes import Bubblewrap, Landlock
    from gimbal.sandbox.trial import held

    found = {}
    for spec in (Monty(), Landlock(), Bubblewrap()):
        name = type(spec).__name__
        try:
            result = held(spec)
        except SandboxError as error:
            found[name] = str(error)
            continue
        through = [attack for attack, holds in result.items() if not holds]
        found[name] = f"holds {len(result) - len(through)} of {len(result)} attacks" + (
            f"; refused, as these got through: {', '.join(through)}" if through else ""
        )
    return found
