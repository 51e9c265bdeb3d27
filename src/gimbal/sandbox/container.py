"""Containers: a placeholder that states what such a rung would need."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from gimbal.sandbox.base import AbstractSandboxSpec, unavailable
from gimbal.sandbox.live import AbstractSandbox, Unavailable


@dataclass(frozen=True, kw_only=True)
class Container(AbstractSandboxSpec):
    """An image in ``engine`` (docker, podman, or gVisor's runsc). gimbal does not start containers: it states what this needs, and runs
    nothing. Start the whole run in the container and choose Landlock inside it.
    """

    image: str
    engine: str = "docker"

    def missing(self) -> str:
        return unavailable(self.start)

    def start(self) -> AbstractSandbox:
        there = "is installed" if shutil.which(self.engine) else "is not installed"
        raise Unavailable(
            f"Container({self.image!r}) wants {self.engine}, which {there}, with no network, no mounts and no privileges; gimbal "
            "does not start containers: run it in one, and choose Landlock() there"
        )
