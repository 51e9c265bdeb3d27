"""The same learner steps in one process and in several, then runs: what test_distributed.py starts under torchrun."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "runtime"))
from small import Shallow, small_run

from gimbal import cli, recipes
from gimbal.controllers import Region
from gimbal.dataflow.packing import pack
from gimbal.learning.joining import join
from gimbal.learning.learner import Learner
from gimbal.learning.ranks import SingleProcess
from gimbal.learning.updates.policy_gradient import column_needs
from gimbal.policies.token import Sampling
from gimbal.report.files import deterministic
from gimbal.runtime.local import Trainer

# Groups and rollouts: shares that are as even as can be, a group that must be split, and a rank with nothing to do.
SHAPES = {"three groups": (3, 3), "one group": (1, 3), "one row": (1, 1)}
CASES = (  # recipe, shape, steps
    ("grpo", "three groups", 3),
    ("gspo", "three groups", 3),  # several minibatches, activations recomputed
    ("clip_cov", "three groups", 3),  # a mask by statistics of the whole minibatch
    ("entropy", "three groups", 3),  # a regulariser on a column of the forward pass
    ("ppo", "three groups", 2),  # a critic
    ("ppo_ewma", "one group", 2),  # an anchor with weights of its own
    ("stable", "one group", 3),  # steps that are taken back in part
    ("entropy", "one row", 1),
)
OPTIMIZERS = {"muon": {"optimizer": "muon"}, "sgd": {"optimizer": "sgd"}, "half": {"optimizer_dtype": "bfloat16"}}
CASES += tuple((name, "three groups", 1) for name in OPTIMIZERS)  # grpo by each
MIXED = ("grpo", "three groups")  # once more, in bfloat16 with weights in float32


def batches(shape: str) -> list:
    groups, rollouts = SHAPES[shape]
    trainer = Trainer(small_run(prompts_per_step=groups, num_generations=rollouts, sampling=Sampling(max_length=6)))
    trainer.begin()
    return [pack(trainer.pipeline.next_batch(0)[0]) for _ in range(3)]


def method(name: str):
    run = recipes.load("grpo" if name in OPTIMIZERS else name)
    # With the usual 1e-8 Adam makes a whole step of a gradient that is only rounding.
    own = replace(run.optimization, epsilon=1e-6, microbatch_tokens=128, checkpointing=name == "gspo")
    own = replace(own, minibatches=min(2, own.minibatches), epochs=1)
    own = replace(own, **OPTIMIZERS.get(name, {}))
    narrow = None if run.stability is None else replace(run.stability, region=Region(kl=1e-3))
    return replace(run, optimization=own, stability=narrow)


def steps(name: str, data: list, ranks, compute: torch.dtype | None = None) -> dict:
    """Metrics, gradients and weights of all steps; the same names whoever did them."""
    run = method(name)
    critic = run.critic.load(0) if run.critic else None
    reference = ranks.shard(Shallow().load()) if "reference_NS" in column_needs(run) else None
    policy = Shallow().load()
    policy.compute = compute
    learner = Learner(ranks.shard(policy), run, critic=critic, reference=reference, total_steps=3, ranks=ranks)
    found: dict = {"metrics": [], "gradients": {}}
    for number, batch in enumerate(data):
        prepared = learner.prepare(batch)
        if number == 0:
            learner.forward_backward(prepared)
            found["gradients"] = tensors(learner.policy, gradient=True)
            for optimizer in learner.models.optimizers.values():
                optimizer.zero_grad()
        metrics = learner.step(prepared)
        found["metrics"].append({**deterministic(metrics), **learner.control(metrics)})
    return {**found, "weights": tensors(learner.policy), "critic": tensors(critic) if critic is not None else {}}


def tensors(module, gradient: bool = False) -> dict:
    picked = {n: p.grad if gradient else p.detach() for n, p in module.named_parameters()}
    return {n: (x.full_tensor() if hasattr(x, "full_tensor") else x).clone() for n, x in picked.items()}


def main(directory: Path, runs: list[list[str]]) -> None:
    torch.set_num_threads(1)
    data = torch.load(directory / "batches.pt", weights_only=False)
    ranks = join()
    assert not isinstance(ranks, SingleProcess)
    found = {(name, shape): steps(name, data[shape][:count], ranks) for name, shape, count in CASES}
    found["mixed"] = steps(MIXED[0], data[MIXED[1]], ranks, torch.bfloat16)
    torch.save(found, directory / f"rank{ranks.rank}.pt")
    for words in runs:  # in these processes too: to start others takes longer than to run
        assert cli.main(words) == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
