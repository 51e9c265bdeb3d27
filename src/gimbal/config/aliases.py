"""Names from other systems, each accepted; but for what goes into a run (``INPUTS``), with a notice that gives gimbal's name."""

from __future__ import annotations

# Ours first: every name on the right is read as the name on the left.
_SAME = {
    "num_generations": "rollout.n actor_rollout_ref.rollout.n n_samples_per_prompt group_size num_generations_per_prompt "
    "num_return_sequences_in_group num_samples_per_prompt_rollout",
    "prompts_per_step": "train_batch_size data.train_batch_size rollout_batch_size groups_per_batch num_prompts_per_step",
    "optimization.epochs": "num_iterations ppo_epochs actor_rollout_ref.actor.ppo_epochs update_epochs num_ppo_epochs",
    "optimization.minibatches": "ppo_n_minibatches num_mini_batches num_minibatches",
    "optimization.learning_rate": "lr actor_rollout_ref.actor.optim.lr actor_learning_rate",
    "optimization.max_grad_norm": "grad_clip clip_grad gradient_clipping clip_grad_norm",
    "optimization.decay": "lr_scheduler_type lr_scheduler lr_decay_style",
    "optimization.warmup_steps": "lr_warmup_steps lr_warmup_iters",
    "optimization.beta1": "adam_beta1",
    "optimization.beta2": "adam_beta2",
    "optimization.epsilon": "adam_epsilon adam_eps",
    "optimization.optimizer": "optim optimizer_name actor_rollout_ref.actor.optim.optimizer",
    "optimization.checkpointing": "gradient_checkpointing enable_gradient_checkpointing activation_checkpointing",
    "optimization.microbatch_tokens": "ppo_max_token_len_per_gpu max_tokens_per_gpu max_tokens_per_mb",
    "objective.clip_low": "epsilon_low clip_ratio_low ratio_clip_min pg_clip_low",
    "objective.clip_high": "epsilon_high clip_ratio_high eps_clip_high ratio_clip_max pg_clip_high",
    "objective.dual_clip": "clip_dual clip_ratio_c ratio_clip_c eps_clip_c delta",
    "sampling.max_length": "max_completion_length max_response_length data.max_response_length max_new_tokens response_length "
    "generate_max_len rollout_max_response_len max_tokens",
    "max_staleness": "max_head_offpolicyness max_off_policy_threshold max_off_policy_steps max_staleness_steps "
    "max_trajectory_age_steps max_steps_off_policy max_async_level async_steps async_generation_ratio staleness_threshold",
    "policy.model": "model model.name model_name_or_path model_path pretrain hf_checkpoint actor_rollout_ref.model.path",
    "policy.dtype": "torch_dtype",
    "reference": "teacher_model_name_or_path teacher_model ref_model_name_or_path",
    "steps": "max_steps total_training_steps total_train_steps num_rollout",
    "checkpoint_every": "save_steps save_freq save_interval",
    "keep_checkpoints": "save_total_limit max_actor_ckpt_to_keep keep_last",
    "keep_every": "keep_interval",
    "held_out.save_best": "metric_for_best_model",
    "held_out.every": "eval_steps test_freq eval_interval eval.interval",
}
ALIASES = {theirs: ours for ours, names in _SAME.items() for theirs in names.split()}

# What goes into a run, without a notice. Names for data are from TRL, verl and OpenRLHF, those of environments from CleanRL and SB3.
INPUTS = {
    **dict.fromkeys(("reward", "reward_funcs"), "rewards"),
    "agent": "workflow",
    **dict.fromkeys(("train_dataset", "dataset", "dataset_name", "data.train_files", "prompt_data"), "tasks"),
    **dict.fromkeys(("eval_dataset", "data.val_files", "dataset_test_split"), "held_out"),
    **dict.fromkeys(("data.prompt_key", "input_key"), "tasks.prompt"),
    "label_key": "tasks.answer",
    "dataset_config": "tasks.config",
    "dataset_train_split": "tasks.split",
    "dataset_streaming": "tasks.streaming",
    **dict.fromkeys(("env", "env_id"), "tasks.environment"),
}


def names_of(*fields: str) -> tuple[str, ...]:
    """These fields of a run, and the names in ``INPUTS`` for them."""
    return (*fields, *(theirs for theirs, ours in INPUTS.items() if ours in fields))


# One name there, two here; the more specific name wins in any order.
BOTH_CLIPS = dict.fromkeys(
    ("epsilon", "clip_ratio", "eps_clip", "cliprange", "clip_range"), ("objective.clip_low", "objective.clip_high")
)

# A coefficient there is a part of the loss here: it is set if the recipe has the part; otherwise the part is added.
PARTS = dict.fromkeys(
    ("kl_coef", "kl", "beta", "kl_loss_coef", "kl_ctl", "reference_policy_kl_penalty", "kl_penalty_coef", "kl_tau"),
    "KLPenalty",
) | dict.fromkeys(("entropy_coef", "entropy_coeff", "ent_coef"), "EntropyBonus")

# Sections of verl's and prime-rl's configurations: actor_rollout_ref.actor.clip_ratio_high is read as clip_ratio_high.
SECTIONS = ("actor_rollout_ref", "algorithm", "data", "trainer", "orchestrator", "async_training")

# Names without a single counterpart: the refusal says what to write instead.
_SIZE = "gimbal takes the number of minibatches, not their size: optimization.minibatches = batch size / minibatch size"
_OBJECTIVE = "the loss is a part: objective=ClippedRatio(), SequenceRatio(), ... (gimbal list methods)"
_ADVANTAGE = "the estimator is a part: advantage=GroupNormalized(), LeaveOneOut(), GAE(), ..."
_AGGREGATION = (
    "the denominator is a part: aggregation=TokenMean(), SequenceMean(), SequenceSum() or ConstantMean(length=...)"
)
_LOSS_TYPE = (
    "it is the loss's denominator: grpo is aggregation=SequenceMean(), dapo and bnpo TokenMean(), dr_grpo ConstantMean(length=N); "
    "gimbal train dapo, dr_grpo, gspo and cispo are the whole methods"
)
_SCALE = "the estimator is a part: group is advantage=GroupNormalized(), batch BatchScaled(), none GroupCentered()"
_LORA = "LoRA is a part: lora='LoRA(rank=16, alpha=32)', on every linear layer unless targets=[...] names some"
_VLLM = (
    "the sampler is a part: engine=VLLM() in this process, engine=VLLMServer() or VLLMServer(url=...) behind a server"
)
_TRACK = "--track wandb, tensorboard, trackio, or several with commas; metrics.jsonl is always written"
_NAME = "a run is runs/NAME: use --name NAME, and --runs DIRECTORY for another place than runs"
_BATCH = "gimbal counts prompts, not rollouts: prompts_per_step x num_generations per step; optimization.microbatch_tokens sets memory"
_GPUS = "devices=Devices(...) places learner and samplers; several learner processes start under torchrun (docs/distributed.md)"
_CORRECTION = "the correction is a part: correction=TruncatedWeight(level='token', cap=2.0), MaskedWeight(...) or None"
_STALENESS = (
    "it is a part: staleness=Pace(), the default, keeps the bound and drops nothing; so do Wait() and Withhold(); DropStale() drops "
    "what is older, MaskStale() masks it, Reweight() weighs it down (docs/staleness.md)"
)
EXPLAINED = {
    "ppo_mini_batch_size": _SIZE,
    "actor_rollout_ref.actor.ppo_mini_batch_size": _SIZE,
    "mini_batch_size": _SIZE,
    **dict.fromkeys(("per_device_train_batch_size", "generation_batch_size", "batch_size"), _BATCH),
    "gradient_accumulation_steps": "micro-batches follow from optimization.microbatch_tokens and never change the gradient",
    "bf16": "policy.mixed_precision=bf16 computes in bfloat16 with float32 weights; policy.dtype=bfloat16 stores the weights in it too",
    "max_prompt_length": "prompts are never cut",
    "callbacks": "there are none: metrics.jsonl and --track have every metric, controllers= moves a setting by one, and "
    "held_out.save_best=score keeps the best model",
    "loss": _OBJECTIVE,
    "loss_type": _LOSS_TYPE,
    "policy_loss.loss_mode": _OBJECTIVE,
    "adv_estimator": _ADVANTAGE,
    "algorithm.adv_estimator": _ADVANTAGE,
    "advantage_estimator": _ADVANTAGE,
    "scale_rewards": _SCALE,
    "importance_sampling_level": "token level is objective=ClippedRatio(), sequence level objective=SequenceRatio()",
    "level": "token level is objective=ClippedRatio(), sequence level objective=SequenceRatio()",
    "loss_agg_mode": _AGGREGATION,
    "kl_in": "in the loss it is regularisers=[KLPenalty()], in the reward reward_shaping=[KLReward()]",
    "kl_estimator": "it is a field of the part: regularisers=[KLPenalty(estimator='k3')]",
    "algorithm.kl_ctrl.kl_coef": "it is the KL in the reward: reward_shaping=[KLReward(coef=...)]; in the loss it is kl_loss_coef",
    "use_kl_loss": "'regularisers=[KLPenalty(coef=...)]' turns it on, 'regularisers=()' off",
    "rollout_correction": _CORRECTION,
    "vllm_importance_sampling_correction": _CORRECTION,
    "truncated_importance_sampling": _CORRECTION,
    "tis_imp_ratio_cap": _CORRECTION,
    "staleness_policy": _STALENESS,
    "max_off_policy_strategy": _STALENESS,
    **dict.fromkeys(
        ("num_train_epochs", "total_epochs"),
        "a run is measured in learner steps: steps = epochs x tasks / prompts_per_step",
    ),
    "steps_per_generation": "updates per batch: set optimization.minibatches (parts of it) and optimization.epochs (passes over it)",
    "warmup_ratio": "warm-up is counted in learner steps: optimization.warmup_steps=N",
    **dict.fromkeys(
        ("use_peft", "use_lora", "lora_r", "lora_rank", "lora_alpha", "lora_target_modules", "peft_config"), _LORA
    ),
    **dict.fromkeys(("use_vllm", "vllm_mode", "vllm_server_base_url", "vllm_server_host", "rollout.name"), _VLLM),
    **dict.fromkeys(("report_to", "logger", "wandb", "project_name", "wandb_project"), _TRACK),
    **dict.fromkeys(("name", "output_dir", "default_local_dir", "run_name", "experiment_name"), _NAME),
    "logging_steps": "every step is printed and written to metrics.jsonl; record_every=N writes every N-th step's rollouts",
    "log_completions": "rollouts are written every record_every=10 steps and shown by gimbal report",
    "resume_from_checkpoint": "gimbal train --resume RUN continues from the newest checkpoint",
    "push_to_hub": "gimbal export RUN DIRECTORY writes the files to upload: hf upload NAME DIRECTORY",
    "reward_weights": "give weights with the rewards: reward=f.py:score*0.7,f.py:brevity*0.3",
    "mask_truncated_completions": "it is a filter: filters=DropOverlong(); for a soft penalty, add OverlongPenalty() to the rewards",
    "eval_strategy": "held_out=FILE evaluates before and after training; held_out.every=N also evaluates every N steps",
    "do_eval": "held_out=FILE evaluates; held_out=none does not",
    **dict.fromkeys(
        ("sync_ref_model", "ref_model_sync_steps"), "reference_resets=[10, 20] renews the reference after these steps"
    ),
    "ref_model_mixup_alpha": "reference_rate=0.1 moves the reference a tenth of the way to the policy after each update",
    "fp16": "training in float16 is not supported: policy.mixed_precision=bf16",
    "repetition_penalty": "gimbal trains the distribution it samples from; sampling.temperature shapes it",
    **dict.fromkeys(("deepspeed", "fsdp", "n_gpus_per_node", "num_gpus", "tensor_model_parallel_size"), _GPUS),
    **dict.fromkeys(
        ("custom_reward_function.path", "reward_fn"), "reward=file.py:function; verl's compute_score works unchanged"
    ),
    "filter_groups.enable": "it is a filter: filters=ZeroVariance() drops groups whose scores are all equal and samples others",
}
