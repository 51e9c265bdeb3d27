"""max_staleness = 0 is the plain synchronous loop, bit for bit: here is that loop, with nothing of the runtime in it."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from small import Digits, Shallow, small_run

from gimbal.engines.base import Request
from gimbal.policies.token import Tokens
from gimbal.records import Group
from gimbal.runtime.local import Trainer


def plain_loop(run, steps):
    """GRPO, one update a batch. Returns the losses and the weights."""
    policy = Shallow().load()
    o = run.optimization
    optimizer = torch.optim.AdamW(
        policy.parameters(), o.learning_rate, (o.beta1, o.beta2), o.epsilon, o.weight_decay, fused=True
    )
    engine, order, losses, dispatched = run.engine.start(policy), run.curriculum.start(run.tasks, run.seed), [], 0
    for version in range(steps):
        engine.load(version, policy.state_dict())
        drawn = {}
        for group in range(dispatched, dispatched + run.prompts_per_step):
            task = order.next()
            for sample in range(run.num_generations):
                engine.submit(Request(group=group, task=task, sample=sample, sampling=run.sampling, seed=run.seed))
        dispatched += run.prompts_per_step
        while engine.in_flight:
            drawn |= {finished.key: finished.rollout for finished in engine.step()}
        rollouts = [drawn[key] for key in sorted(drawn)]
        reward = torch.tensor(Digits()(Group.of(0, rollouts[0].task, rollouts)))
        by_group = reward.view(run.prompts_per_step, run.num_generations)
        centred = by_group - by_group.double().mean(1, keepdim=True).float()
        advantage = (centred / (centred.square().double().sum(1, keepdim=True) / 3).sqrt().float().add(1e-6)).view(-1)
        batch = Tokens.stack([rollout.decisions for rollout in rollouts])
        mask = torch.arange(batch.shape[1]) < (batch.length_N - batch.prompt_N)[:, None]
        with torch.no_grad():
            anchor = policy.evaluate(batch).logprob_NS
        logprob = policy.evaluate(batch).logprob_NS
        ratio = (logprob - anchor).exp()
        a = advantage[:, None] * mask
        loss = (-torch.minimum(ratio * a, ratio.clamp(0.8, 1.2) * a) * (mask.float() / mask.sum())).sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), o.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses, policy.state_dict()


@pytest.mark.parametrize("ahead", ["ready", "full"])
def test_staleness_0_is_the_plain_synchronous_loop(single_thread, ahead):
    run = small_run(ahead=ahead)
    losses, weights = plain_loop(run, 5)
    trainer = Trainer(run)
    ours = [trainer.advance()[0]["loss"] for _ in range(5)]
    assert ours == losses
    for name, tensor in trainer.learner.policy.state_dict().items():
        assert torch.equal(tensor, weights[name]), name


def test_staleness_1_differs_from_the_synchronous_loop(single_thread):
    # The test above could not fail if staleness changed nothing.
    _, weights = plain_loop(small_run(), 5)
    trainer = Trainer(small_run(max_staleness=1))
    ages = [trainer.advance()[0]["staleness/max"] for _ in range(5)]
    assert max(ages) == 1
    differences = [(t - weights[n]).abs().max() for n, t in trainer.learner.policy.state_dict().items()]
    assert max(differences) > 1e-5


def test_a_trainer_that_is_made_is_wired_and_has_done_nothing(single_thread):
    """Weights, generation and proof are its first action, once, whoever asks for it."""
    trainer = Trainer(small_run())
    assert trainer.engine.version == -1 and trainer.engine.in_flight == 0 and trainer.pipeline.dispatched == 0
    trainer.begin()
    proof = trainer.deliveries[""].proof
    assert trainer.engine.version == 0 and trainer.pipeline.dispatched == 0
    trainer.begin()
    trainer.advance()
    assert trainer.deliveries[""].proof is proof and trainer.engine.version == 1
    trainer.close()
