"""Writes claims/README.md and the figure from the recorded results: python claims/page.py. A test holds them against the record."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import actor_critics  # noqa: E402
import adversarial  # noqa: E402
import age_page  # noqa: E402
import agreed  # noqa: E402
import atoms  # noqa: E402
import attacked  # noqa: E402
import balance  # noqa: E402
import base_set  # noqa: E402
import base_set_page  # noqa: E402
import blackbox  # noqa: E402
import blows  # noqa: E402
import branches  # noqa: E402
import branches_slower  # noqa: E402
import branches_slower_page  # noqa: E402
import bugs  # noqa: E402
import cached  # noqa: E402
import campaign  # noqa: E402
import carried  # noqa: E402
import cases  # noqa: E402
import cases_page  # noqa: E402
import classified  # noqa: E402
import closed_form  # noqa: E402
import closed_form_page  # noqa: E402
import collected  # noqa: E402
import combinatorial  # noqa: E402
import composed  # noqa: E402
import composed_page  # noqa: E402
import control  # noqa: E402
import control_page  # noqa: E402
import corrected  # noqa: E402
import curve  # noqa: E402
import curve_page  # noqa: E402
import deadlines  # noqa: E402
import decoders  # noqa: E402
import delegated  # noqa: E402
import demo  # noqa: E402
import demo_page  # noqa: E402
import distillation  # noqa: E402
import dose  # noqa: E402
import dose_page  # noqa: E402
import drafter  # noqa: E402
import drafter_page  # noqa: E402
import drafts  # noqa: E402
import drift  # noqa: E402
import early  # noqa: E402
import echo  # noqa: E402
import echo_page  # noqa: E402
import edits  # noqa: E402
import failing  # noqa: E402
import failing_terminal  # noqa: E402
import families  # noqa: E402
import few_steps  # noqa: E402
import few_steps_page  # noqa: E402
import flow_maps  # noqa: E402
import flow_maps_page  # noqa: E402
import flows  # noqa: E402
import forcing  # noqa: E402
import forecasts  # noqa: E402
import fours  # noqa: E402
import fours_page  # noqa: E402
import gardo  # noqa: E402
import gardo_page  # noqa: E402
import glance  # noqa: E402
import goals  # noqa: E402
import graded  # noqa: E402
import grid  # noqa: E402
import grid_page  # noqa: E402
import group_matching  # noqa: E402
import guardian  # noqa: E402
import half_good  # noqa: E402
import harness_edits  # noqa: E402
import hijacked  # noqa: E402
import histories  # noqa: E402
import holds  # noqa: E402
import holds_page  # noqa: E402
import horizon  # noqa: E402
import horizons  # noqa: E402
import in_world  # noqa: E402
import inspector  # noqa: E402
import joint  # noqa: E402
import korr  # noqa: E402
import kuhn  # noqa: E402
import kuhn_page  # noqa: E402
import limbs  # noqa: E402
import locomotion  # noqa: E402
import locomotion_page  # noqa: E402
import loops  # noqa: E402
import loops_page  # noqa: E402
import masked  # noqa: E402
import masked_blocks  # noqa: E402
import memory  # noqa: E402
import nearer  # noqa: E402
import offline  # noqa: E402
import offline_page  # noqa: E402
import paced  # noqa: E402
import planned  # noqa: E402
import plans  # noqa: E402
import priced  # noqa: E402
import prior  # noqa: E402
import proposals  # noqa: E402
import pushed  # noqa: E402
import refined  # noqa: E402
import reflex  # noqa: E402
import regret  # noqa: E402
import residual  # noqa: E402
import resolution  # noqa: E402
import reviews  # noqa: E402
import reward_gradients  # noqa: E402
import reward_gradients_page  # noqa: E402
import robust  # noqa: E402
import roles  # noqa: E402
import roles_page  # noqa: E402
import route_edits  # noqa: E402
import rulebook  # noqa: E402
import safe  # noqa: E402
import safe_page  # noqa: E402
import scarce  # noqa: E402
import searched  # noqa: E402
import seeded  # noqa: E402
import segments  # noqa: E402
import self_distilled  # noqa: E402
import shown  # noqa: E402
import skills  # noqa: E402
import stac  # noqa: E402
import staggered  # noqa: E402
import steered  # noqa: E402
import stream_pairs  # noqa: E402
import stream_scores  # noqa: E402
import streams  # noqa: E402
import swarm  # noqa: E402
import taught  # noqa: E402
import terminal  # noqa: E402
import terminal_page  # noqa: E402
import together  # noqa: E402
import tokens  # noqa: E402
import tokens_page  # noqa: E402
import traffic  # noqa: E402
import tuned_page  # noqa: E402
import turn_splits  # noqa: E402
import turn_splits_page  # noqa: E402
import turns  # noqa: E402
import turns_page  # noqa: E402
import two_flows  # noqa: E402
import two_modes  # noqa: E402
import two_modes_page  # noqa: E402
import votes  # noqa: E402
import ways  # noqa: E402
import worlds  # noqa: E402
import worlds_page  # noqa: E402

Runs = Sequence[Mapping[str, Any]]

HEAD = """# Claims

One file a claim: the question, the rule by which it is decided, the command, the record. Everything below is written by
`python claims/page.py` from the record, and a test recomputes it.

"""
RESOLUTION = {"real": "real", "paid": "paid", "nearness": "nearness", "decisions": "decisions", "seconds": "seconds"}
STAGGERED = {"nearness": "nearness", "real": "real", "seconds": "seconds"}
SCARCE = {
    "return": "return",
    "aims of the coder": "coder's",
    "draws are off by": "off",
    "draws are off the policy by": "off_policy",
    "seconds of CPU": "cpu",
}
HISTORIES = {"return": "return", "spread of codes": "spread", "loss of distances": "apart", "seconds of CPU": "cpu"}
HALF_GOOD = {"return": "return", "balance higher where poor by": "follows", "seconds of CPU": "cpu"}
COMBINATORIAL = {"return": "return", "seconds of CPU": "cpu"}
TWO_FLOWS = {"return": "return", "seconds of CPU": "cpu"}
PRIOR = {"return": "return", "recorded, of a minibatch": "prior", "seconds of CPU": "cpu"}
ADDITIONS = {"return": "return", "weight by errors": "importance", "edited": "edited", "seconds of CPU": "cpu"}
TRAFFIC = {
    "return": "return",
    "in its own world": "own",
    "off": "off",
    "without a crash": "without a crash",
    "seconds of CPU": "cpu",
}
CORRECTED = {
    name: name for name in ("return", "sampled", "without a crash", "alone", "alone without a crash", "better")
} | {"seconds of CPU": "cpu"}
PLANS = {
    "return": "return",
    "as it samples": "sampled",
    "without a crash": "without a crash",
    "entropy": "nats",
    "seconds of CPU": "cpu",
}
GOALS = {"goals reached": "success", "return": "return", "paid otherwise": "relabelled", "seconds of CPU": "cpu"}
COLLECTED = {"steps in the river": "river", "steps in the put": "put", "seconds of CPU": "cpu"}
CARRIED = {"before the switch": "before", "soon after": "soon", "in the end": "end", "seconds of CPU": "cpu"}
BLOWS = {
    "one step": "one step",
    **{f"at {horizon}": f"at {horizon}" for horizon in blows.HORIZONS},
    "seconds of CPU": "cpu",
}
DRIFT = {
    "holds": "holds",
    "agreement": "agreement",
    **{f"at {horizon}": f"at {horizon}" for horizon in worlds.HORIZONS},
    "seconds of CPU": "cpu",
}
IN_WORLD = {"return": "return", "promised a step": "promised", "earned a step": "earned", "seconds of CPU": "cpu"}
PLANNED = {"return": "return", "ms an action": "ms"}
TOGETHER = {"success": "success", "gate": "gate", "one step from ten": "few", "seconds of CPU": "cpu"}
NEARER = {"return": "return", "share outside": "outside", "seconds of CPU": "cpu"}
RESIDUAL = {"return": "return", "size of a correction": "size", "seconds of CPU": "cpu"}
KORR = {
    "return under blows twice as strong": "twice",
    "as in training": "once",
    "without": "none",
    "minus the error five steps ahead": "minus error",
    "size of a correction": "size",
    "seconds of CPU": "cpu",
}
DECODERS = {"opened": "figure", "tries at a door": "at a door", "at the rarer of them": "rarer", "steps": "steps"}
DECODERS |= {"seconds of CPU": "cpu"}
LIMBS = {
    "return": "return",
    "as it samples": "sampled",
    "clipped": "clipped",
    "by one ratio": "joint",
    "KL of an update": "kl",
    "seconds of CPU": "cpu",
}
TAUGHT = {"return": "return", "PPO from step": "opened", "dip": "dip", "seconds of CPU": "cpu"}
WAYS = {name: name for name in ("return", "success", "last", "ways", "arrived")} | {"seconds of CPU": "cpu"}
STEERED = {"return": "return", "mean of squared noise": "size", "seconds of CPU": "cpu"}
ROBUST = {"worst case": "worst case", "as it is": "as it is", "seconds of CPU": "cpu"}
FAMILIES = {"in the worst": "worst", "over all nine": "mean", "seconds of CPU": "cpu"}
HORIZON = {
    "success after": "after",
    "of 2 turns": "turns_2",
    "of 3": "turns_3",
    "of 4": "turns_4",
    "mean pass rate": "mean",
    "cut": "cut",
    "tokens": "tokens",
    "steps": "steps",
}
HORIZONS = {"mean of six evaluations": "learned", "last": "last", "explained": "explained"}
PROPOSALS = {
    "return": "return",
    "drawn by weights": "drawn",
    "a single proposal": "cloned",
    "gain of the best": "gain",
    "seconds of CPU": "cpu",
}
SEEDED = {"pass@1": "pass", "at the end": "end", "groups seeded": "seeded", "of them solved": "solved"} | {
    "mixed groups per 1,000 tokens": "mixed",
    "steps": "steps",
}
BRANCHES = {name: name for name in ("reward", "true", "coverage", "shared", "steps")} | {"seconds of CPU": "cpu"}
MEMORY = {name: name for name in ("success", "context", "learner", "gap", "broken")} | {"seconds of CPU": "cpu"}
DELEGATED = {
    f"{name}{when}": name + key for name in delegated.PAGES for when, key in ((" before", "_before"), ("", ""))
} | {
    "lost": "lost",
    "tokens": "tokens",
    "seconds of CPU": "cpu",
}
ATOMS = {"held out": "held", "before": "before", "trained pairs": "trained", "seconds of CPU": "cpu"}
RULEBOOK = {"known": "known", "reward of readers": "aware", "of the others": "unaware", "seconds of CPU": "cpu"}
INSPECTOR = {"right": "right", "without second tries": "alone", "seconds of CPU": "cpu"}
SKILLS = {name + when: name + key for name in skills.NAMES for when, key in ((" before", "_before"), (", after", ""))}
GRADED = {"success": "success", "steps kept": "steps", "of them right": "right"}
EDITS = {"pass@32": "at_32", "pass@1": "at_1", "steps": "steps", "seconds of CPU": "cpu"}
SEGMENTS = {"proved": "proved", "alone": "alone", "steps": "steps", "seconds of CPU": "cpu"}
HARNESS = {"score": "score", "bad, kept": "bad", "missed": "missed", "seconds of CPU": "cpu"}
SWARM = {
    "mean of its marks": "mean",
    "at the end": "end",
    "groups of the peer, of all that trained": "taken",
    "steps": "steps",
}
DISTILLATION = {"mean of its marks": "mean", "at the end": "end", "steps": "steps"}
FRONTIER = {
    "mean of its marks": "mean",
    "at the end": "end",
    "groups within reach": "within",
    "KL at the end": "kl_last",
    "steps": "steps",
}
VOTES = {
    "mean of its marks": "mean",
    "at the end": "end",
    "right labels": "right",
    "pruned": "pruned",
    "steps": "steps",
}
GUARDED = {name: name for name in ("value", "return", "cost", "outside", "price", "penalty")} | {
    "seconds of CPU": "cpu"
}
PUSHED = {name: name for name in ("return", "steady", "wave", "gust", "push", "gain")} | {"seconds of CPU": "cpu"}
ATTACKED = {name: name for name in ("known", "unseen", "switching", "best")} | {"seconds of CPU": "cpu"}
HIJACKED = {name: name for name in ("short", "shortest", "longest")} | {"seconds of CPU": "cpu"}
BUGGED = {name: name for name in ("triggers", "hits", "bugs")} | {"seconds of CPU": "cpu"}
REFLEX = {name: name for name in ("return", "whole", "safe", "acted", "price")} | {"seconds of CPU": "cpu"}
EARLY = {name: name for name in ("return", "success", "last", "stuck", "stopped")} | {"seconds of CPU": "cpu"}
CLASSIFIED = {name: name for name in ("return", "success", "paid", "docked")} | {"seconds of CPU": "cpu"}
STAC = {name: name for name in ("return", "inside", "bias", "deviation")} | {"seconds of CPU": "cpu"}
PRICED = {name: name for name in ("return", "cost", "price", "out")} | {"seconds of CPU": "cpu"}
REGRET = {name: name for name in ("regret", "slope", "late", "last")} | {"seconds of CPU": "cpu"}
BALANCE = {name: name for name in ("score", "fitted", "error")}
FLOWS = {name: name for name in ("overlap", "modes", "reward")}
MASKED = {
    "speed": "speed",
    "right at 0.9": "right",
    "tokens per pass at 0.9": "pace",
    "drawn": "drawn",
}
MATCHING = {name: name for name in ("nearness", "coverage", "classes", "distance", "uneven")}
ADVERSARIAL = {name: name for name in ("nearness", "coverage", "classes", "distance")} | {"seconds of CPU": "seconds"}
CACHED = {name: name for name in ("true", "reward", "coverage", "cosine", "steps")} | {"seconds of CPU": "cpu"}
SHOWN = {name: name for name in ("mean", "least", "fill", "extend", "remove")} | {"seconds of CPU": "cpu"}
AGREED = {name: name for name in ("after", "plan", "drawn")} | {"seconds of CPU": "seconds"}
REFINED = {name: name for name in ("nearness", "psnr", "right")} | {"seconds of CPU": "seconds"}
STREAMS = {name: name.replace(" ", "_") for name in ("kept", "kept 6", "kept 1", "nearness", "coverage")}
JOINT = {name: name for name in ("after", "paid", "plan", "drawn")} | {"seconds of CPU": "cpu"}
STREAM_PAIRS = {"agree": "agree", **STREAMS, "left out": "left_out", "seconds of CPU": "seconds"}
STREAM_SCORES = {**STREAMS, "seconds of CPU": "seconds"}
SELF_DISTILLED = {name: name for name in ("nearness", "one", "two", "three", "covered")} | {"seconds of CPU": "seconds"}
FORECASTS = {name: name for name in ("nearness", "fours", "coverage")} | {"seconds of CPU": "seconds"}
BLACKBOX = {name: name for name in ("nearness", "fours", "coverage", "distance")} | {"seconds of CPU": "seconds"}
REVIEWS = {name: name for name in ("right", "gain", "five", "again", "passes")}
ROUTE_EDITS = {name: name for name in ("edited", "plain", "gain", "two", "again")} | {
    "greedy edited": "greedy_edited",
    "greedy plain": "greedy_plain",
}
DRAFTS = {name: name for name in ("reward", "true", "coverage", "agreement", "steps")} | {"seconds of CPU": "cpu"}


def main() -> None:
    for name, text in pages().items():
        (HERE / name).write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    runs, cells = dose.load(), grid.load()
    sections = [
        dose_page.section(runs),
        grid_page.section(cells),
        holds_page.section(grid.load(holds.RECORD)),
        age_page.section(campaign.load(age_page.age.RECORD)),
        curve_page.section(grid.load(curve.RECORD)),
        tokens_page.section(tokens.load()),
        composed_page.section(tokens.load(composed.RECORD)),
        memory_section(campaign.load(memory.RECORD)),
        cases_page.section(campaign.load(cases.RECORD)),
        loops_page.section(campaign.load(loops.RECORD)),
        tuned(inspector, "An inspector's reward", INSPECTOR),
        tuned(delegated, "Look-ups that are delegated", DELEGATED),
        tuned(rulebook, "Rules that are read and then known", RULEBOOK),
        tuned(atoms, "Skills that are composed", ATOMS),
        tuned(edits, "Programs written as edits", EDITS),
        tuned_page.section(segments, "Proofs in segments", SEGMENTS, segments.beside(campaign.load(segments.RECORD))),
        tuned(harness_edits, "Edits of a harness that say what they will fix", HARNESS),
        tuned(skills, "Skills that are revised by what came of them", SKILLS),
        tuned_page.section(
            balance, "Old data without a weight", BALANCE, balance.beside(campaign.load(balance.RECORD))
        ),
        tuned(flows, "Ends in proportion to their reward", FLOWS),
        flows.bar(campaign.load(flows.RECORD)),
        tuned(swarm, "Two runs that share their rollouts", SWARM),
        tuned(distillation, "A teacher that grades every token", DISTILLATION),
        tuned(paced, "A teacher for what is within reach", FRONTIER),
        tuned(seeded, "Solved examples for tasks that only failed", SEEDED),
        tuned(votes, "Votes of a tree, without labels", VOTES),
        demo_page.section(campaign.load(demo.RECORD)),
        terminal_page.section(grid.load(terminal.RECORD)),
        kuhn_page.section(campaign.load(kuhn.RECORD)),
        echo_page.section(campaign.load(echo.RECORD)),
        tuned_page.section(
            graded, "Right steps, or runs that succeed", GRADED, graded.counted(campaign.load(graded.RECORD))
        ),
        turn_splits_page.section(campaign.load(turn_splits.RECORD)),
        turns_page.section(campaign.load(turns.RECORD)),
        tuned(horizon, "A limit on turns that rises", HORIZON),
        roles_page.section(campaign.load(roles.RECORD)),
        fours_page.section(campaign.load(fours.RECORD)),
        offline_page.section(campaign.load(offline.RECORD)),
        safe_page.section(campaign.load(safe.RECORD)),
        tuned(prior, "Recorded episodes beside one's own", PRIOR),
        tuned(actor_critics, "Additions to soft actor-critic, early", ADDITIONS),
        tuned(horizons, "Several horizons of one critic", HORIZONS),
        tuned(steered, "A frozen flow that is steered", STEERED),
        tuned(decoders, "A decoder that is cloned anew", DECODERS),
        tuned(residual, "A frozen policy that is corrected", RESIDUAL),
        tuned(korr, "Corrections that see ahead", KORR),
        tuned(taught, "Several teachers, then RL", TAUGHT),
        tuned(nearer, "Actions nearer to the data", NEARER),
        tuned_page.section(planned, "Plans that are drafted", PLANNED, planned.by_arm(campaign.load(planned.RECORD))),
        tuned_page.section(
            together, "Agents that part in one step", TOGETHER, together.by_arm(campaign.load(together.RECORD))
        ),
        tuned(goals, "Goals that were reached, for those that were wanted", GOALS),
        tuned(ways, "Ways back in place of resets", WAYS),
        tuned(traffic, "Recorded cars that react", TRAFFIC),
        tuned(plans, "Plans that are ranked", PLANS),
        tuned(corrected, "Plans at better speeds", CORRECTED),
        tuned(scarce, "Few good actions among few recorded episodes", SCARCE),
        tuned(half_good, "Recorded actions that are good in half of the states", HALF_GOOD),
        tuned(histories, "Histories where the state is not observed", HISTORIES),
        tuned(carried, "From offline to online, with the critics", CARRIED),
        tuned(two_flows, "Two flows at once", TWO_FLOWS),
        tuned(combinatorial, "Sets of workers to send", COMBINATORIAL),
        tuned(robust, "Caution where transitions are not as they were", ROBUST),
        tuned(collected, "Ten samples of everything", COLLECTED),
        tuned(families, "Worst cases of a family, one at a time", FAMILIES),
        tuned(guardian, "A learned world that is not asked far from its data", GUARDED),
        tuned(pushed, "Pushes of kinds that were not trained on", PUSHED),
        tuned(attacked, "An attacker that is not known", ATTACKED),
        tuned(hijacked, "An attacker of bounded control", HIJACKED),
        tuned(bugs, "A red team that values what chance finds", BUGGED),
        tuned(reflex, "A reflex between decisions", REFLEX),
        tuned(early, "Episodes that are not worth finishing", EARLY),
        tuned(classified, "A reward by a classifier of successes", CLASSIFIED),
        tuned(stac, "A critic that knows how much is chance", STAC),
        tuned(priced, "A price that moves towards a limit", PRICED),
        tuned(regret, "How regret grows on tables", REGRET),
        two_modes_page.section(campaign.load(two_modes.RECORD)),
        tuned(proposals, "A choice among a flow's proposals", PROPOSALS),
        gardo_page.section(campaign.load(gardo.RECORD)),
        base_set_page.section(campaign.load(base_set.RECORD)),
        tuned(drafts, "Candidates in few steps", DRAFTS),
        tuned(branches, "Paths that share their first steps", BRANCHES),
        branches_slower_page.section(campaign.load(branches_slower.RECORD)),
        few_steps_page.section(campaign.load(few_steps.RECORD)),
        flow_maps_page.section(campaign.load(flow_maps.RECORD)),
        tuned(group_matching, "Scores that a group normalises", MATCHING),
        tuned(adversarial, "Real samples beside scores", ADVERSARIAL),
        tuned(self_distilled, "One's own samples of one step more", SELF_DISTILLED),
        tuned(refined, "Finer pictures in one step", REFINED),
        tuned(streams, "Blocks after one's own blocks", STREAMS),
        tuned(stream_pairs, "Blocks that belong together", STREAM_PAIRS),
        tuned(staggered, "Each scale once more after one's own", STAGGERED),
        tuned(resolution, "Learning on the coarser scales of pictures", RESOLUTION)
        + resolution.same_rate(campaign.load(resolution.RECORD)),
        tuned(forcing, "Streams that learn from a discriminator alone", STREAM_SCORES),
        searched.section(campaign.load(searched.RECORD)),
        deadlines.section(campaign.load(deadlines.RECORD)),
        tuned(stream_scores, "Streams distilled by scores that a reward weighs", STREAM_SCORES),
        tuned(joint, "Words and pictures that learn from the picture alone", JOINT)
        + joint.same_rate(campaign.load(joint.RECORD)),
        tuned(agreed, "Learning where two checklists agree", AGREED),
        tuned(blackbox, "A teacher of which only samples are known", BLACKBOX),
        closed_form_page.section(campaign.load(closed_form.RECORD)),
        tuned(masked, "Tokens of a forward pass", MASKED),
        tuned(masked_blocks, "Tokens of a forward pass, in blocks", MASKED),
        tuned(reviews, "Masked text that is read again", REVIEWS),
        tuned(route_edits, "Routes that are drafted and edited", ROUTE_EDITS)
        + route_edits.beside_base(campaign.load(route_edits.RECORD)),
        reward_gradients_page.section(campaign.load(reward_gradients.RECORD)),
        tuned(forecasts, "What a sample earned beyond a forecast", FORECASTS),
        tuned(cached, "The way back through a path that is kept", CACHED),
        tuned(shown, "Verdicts of one judge on several tasks", SHOWN),
        failing.section(tokens.load(failing.RECORD)),
        failing_terminal.section(tokens.load(failing_terminal.RECORD)),
        worlds_page.section(campaign.load(worlds.RECORD)),
        tuned(drift, "Worlds that drift", DRIFT),
        tuned(blows, "Worlds under blows", BLOWS),
        tuned(in_world, "Acting in a learned world alone", IN_WORLD),
        tuned(limbs, "A clip for each limb", LIMBS),
        control_page.section(campaign.load(control.RECORD)),
        locomotion_page.section(campaign.load(locomotion.RECORD)),
        drafter_page.section(campaign.load(drafter.RECORD)),
    ]
    text = "\n".join([HEAD + glance.overview(sections), *sections])
    return {"README.md": text, "dose.svg": dose_page.figure(runs), "grid.svg": grid_page.figure(cells)}


def memory_section(runs: list[dict[str, Any]]) -> str:
    void = memory.void(runs)
    return (
        tuned_page.section(memory, "A context that the policy edits", MEMORY, runs, void) + "\n" + memory.beside(runs)
    )


def tuned(claim: tuned_page.Claim, title: str, figures: Mapping[str, str]) -> str:
    return tuned_page.section(claim, title, figures, campaign.load(claim.RECORD))


if __name__ == "__main__":
    main()
