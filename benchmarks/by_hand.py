"""Updates of control as short as they can be written, on data that do not matter: what benchmarks/control.py holds gimbal against."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import torch
from torch import nn

Update = Callable[[], None]


def moves(weights: Sequence[torch.Tensor], rate: float, norm: float = 0.0) -> Callable[[torch.Tensor], None]:
    """A move of these weights down a loss; their gradients are cut to this norm, if any."""
    adam = torch.optim.Adam(weights, rate, fused=True)

    def move(loss: torch.Tensor) -> None:
        loss.backward(inputs=[*weights])
        if norm:
            nn.utils.clip_grad_norm_(weights, norm)
        adam.step()
        adam.zero_grad()

    return move


def network(sizes: Sequence[int], between: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    layers = [layer for i, o in pairwise(sizes) for layer in (nn.Linear(i, o), between())]
    return nn.Sequential(*layers[:-1])


def twins() -> list[torch.Tensor]:
    """Two networks of 4 inputs, 64 x 64, as one."""
    shapes = ((2, 4, 64), (2, 64, 64), (2, 64, 1), (2, 1, 64), (2, 1, 64), (2, 1, 1))
    return [(0.1 * torch.randn(shape)).requires_grad_() for shape in shapes]


def worth(q: Sequence[torch.Tensor], observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    x = torch.cat([observation, action], -1).expand(2, -1, -1)
    x = torch.baddbmm(q[4], torch.baddbmm(q[3], x, q[0]).relu(), q[1]).relu()
    return torch.baddbmm(q[5], x, q[2])[..., 0]


def sac() -> Update:
    """64 x 64, minibatches of 128, a learned temperature."""
    actor, critic = network((3, 64, 64, 2)), twins()
    target = [weight.detach().clone() for weight in critic]
    alpha, weights = torch.zeros((), requires_grad=True), [*actor.parameters()]
    of_critic, of_actor = moves(critic, 1e-3), moves([*weights, alpha], 1e-3)
    seen, did, after, reward = torch.randn(128, 3), torch.rand(128, 1), torch.randn(128, 3), torch.randn(128)

    def acts(observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_std = actor(observation).chunk(2, -1)
        noise = torch.randn(128, 1)
        u = mean + log_std.clamp(-5, 2).exp() * noise
        return u.tanh(), (2 * torch.logaddexp(u, -u) - log_std - 0.5 * noise * noise).sum(-1)

    def update() -> None:
        with torch.no_grad():
            action, logprob = acts(after)
            y = reward + 0.99 * (worth(target, after, action).min(0).values - alpha.exp() * logprob)
        of_critic((worth(critic, seen, did) - y).square().mean())
        with torch.no_grad():
            torch._foreach_lerp_(target, critic, 0.005)
        action, logprob = acts(seen)
        loss = (alpha.detach().exp() * logprob - worth(critic, seen, action).min(0).values).mean()
        of_actor(loss - alpha * (logprob.detach() - 1).mean())

    return update


def td3() -> Update:
    """64 x 64, minibatches of 128, a policy that moves every second time."""
    actor, critic = network((3, 64, 64, 1)), twins()
    held, target = network((3, 64, 64, 1)), [weight.detach().clone() for weight in critic]
    weights, old = [*actor.parameters()], [*held.parameters()]
    of_critic, of_actor, turn = moves(critic, 1e-3), moves(weights, 1e-3), 0
    seen, did, after, reward = torch.randn(128, 3), torch.rand(128, 1), torch.randn(128, 3), torch.randn(128)

    def update() -> None:
        nonlocal turn
        with torch.no_grad():
            action = (held(after).tanh() + (0.2 * torch.randn(128, 1)).clamp(-0.5, 0.5)).clamp(-1, 1)
            y = reward + 0.99 * worth(target, after, action).min(0).values
        of_critic((worth(critic, seen, did) - y).square().mean())
        turn += 1
        if not turn % 2:
            of_actor(-worth(critic, seen, actor(seen).tanh())[0].mean())
        with torch.no_grad():
            torch._foreach_lerp_(target, critic, 0.005)
            if not turn % 2:
                torch._foreach_lerp_(old, weights, 0.005)

    return update


def dqn() -> Update:
    """Double DQN, 128 x 128, minibatches of 128."""
    net, target = network((4, 128, 128, 2)), network((4, 128, 128, 2))
    weights, old = [*net.parameters()], [*target.parameters()]
    move = moves(weights, 5e-4, norm=10.0)
    seen, after, reward = torch.randn(128, 4), torch.randn(128, 4), torch.randn(128)
    did = torch.randint(2, (128, 1))

    def update() -> None:
        with torch.no_grad():
            y = reward + 0.99 * target(after).gather(1, net(after).argmax(-1, keepdim=True))[:, 0]
        move((net(seen).gather(1, did)[:, 0] - y).square().mean())
        with torch.no_grad():
            torch._foreach_lerp_(old, weights, 0.02)

    return update


def ppo() -> Update:
    """Policy and values of 64 x 64, minibatches of 400."""
    policy, value = network((3, 64, 64, 1), nn.Tanh), network((3, 64, 64, 1), nn.Tanh)
    log_std = torch.zeros(1, requires_grad=True)
    move = moves([*policy.parameters(), log_std, *value.parameters()], 2e-3, norm=0.5)
    seen, did, old = torch.randn(400, 3), torch.randn(400, 1), torch.randn(400)
    advantage, earned = torch.randn(400), torch.randn(400)

    def update() -> None:
        logprob = (-0.5 * ((did - policy(seen)) / log_std.exp()).square() - log_std).sum(-1)
        ratio = (logprob - old).exp()
        gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        move((value(seen)[:, 0] - earned).square().mean() / 2 - gain.mean())

    return update


UPDATES: Mapping[str, Callable[[], Update]] = {"sac": sac, "td3": td3, "dqn": dqn, "ppo_pendulum": ppo}
