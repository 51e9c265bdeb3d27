"""liger-kernel's fused kernels for a transformers model on a GPU.

A norm of a transformers model is eight kernels over numbers in float32, a rotation of queries and keys ten, and backward as many: in a
learner step they take more time than the matrices. Fused, each is one pass over its input (arXiv:2410.10989).
"""

from __future__ import annotations

from typing import Any


def fuse(model: Any) -> None:
    """Replace the norms, rotations and gated activations of this model, in place. Log-probabilities stay gimbal's own, because liger's
    loss gives a mean over a batch.

    It also replaces the classes that later models of the architecture are built of in this process.
    """
    try:
        from liger_kernel.transformers.monkey_patch import (
            MODEL_TYPE_TO_APPLY_LIGER_FN,
            _apply_liger_kernel_to_instance,
        )
    except ImportError as error:
        raise ValueError(
            "policy.use_liger_kernel needs liger-kernel: pip install -e '.[liger]' in the clone, or leave it out"
        ) from error
    if (name := model.config.model_type) not in MODEL_TYPE_TO_APPLY_LIGER_FN:
        raise ValueError(f"liger-kernel has no kernels for {name}: leave out policy.use_liger_kernel")
    _apply_liger_kernel_to_instance(model=model, cross_entropy=False, fused_linear_cross_entropy=False)
