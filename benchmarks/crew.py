"""What the simulator says of three roles with weights of their own: the table of docs/scale.md. Nothing here is measured.

Speeds, slots and prompts are those of scale.py.

    python benchmarks/crew.py
"""

from __future__ import annotations

from scale import SPEEDS

from gimbal.runtime.simulate.crew import CrewSetup, Order, RolePlan, balanced, simulate_crew
from gimbal.runtime.simulate.timing import LogNormal

CALLS = {"planner": 1, "executor": 8, "judge": 3}  # at once, of an episode
TRAINERS = {"planner": 1, "executor": 8, "judge": 3}
ORDERS: tuple[Order, ...] = ("synchronous", "micro-batch", "autonomous")
EQUAL = CrewSetup(
    roles={
        name: RolePlan(
            speeds=SPEEDS,
            lengths=LogNormal(mean=2000.0, cv=1.0, limit=16384, task_share=0.5),
            calls=calls,
            samplers=4,
            slots=64,
            trainers=TRAINERS[name],
        )
        for name, calls in CALLS.items()
    },
    turns=tuple(CALLS),
    episodes=256,
    micro_batch=16,
    warmup=3,
    steps=8,
)


def table() -> list[str]:
    names = ", ".join(CALLS)
    heads = (f"samplers of {names}", "order", "s a step", "samplers idle", "trainers idle", "mean age", "oldest")
    lines = ["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|"]
    for plan in (EQUAL, balanced(EQUAL, "synchronous")):
        for order in ORDERS:
            found = simulate_crew(plan, order)
            cells = (
                ", ".join(str(role.samplers) for role in plan.roles.values()),
                order,
                f"{found.step_s:.0f}",
                ", ".join(f"{share:.0%}" for share in found.sampler_idle.values()),
                ", ".join(f"{share:.0%}" for share in found.trainer_idle.values()),
                f"{found.age_mean:.2f}",
                str(found.age_max),
            )
            lines.append("| " + " | ".join(cells) + " |")
    return lines


if __name__ == "__main__":
    print("\n".join(table()))
