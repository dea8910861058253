"""Define the settings of training: GRPO, supervised fine-tuning, the two backends, and the trackers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from sql_agent.config.paths import VAR
from sql_agent.config.section import (
    Count,
    NotNegative,
    NotNegativeNumber,
    Positive,
    PositiveNumber,
    Seconds,
    Section,
    Share,
)


class TrainSettings(Section):
    """GRPO (Shao et al. 2024, arXiv:2402.03300) with the asymmetric clip of DAPO (Yu et al. 2025, arXiv:2503.14476)."""

    steps: Positive = Field(20, description="GRPO steps")
    questions_per_step: Count = Field(4, description="questions in one step")
    group_size: Annotated[int, Field(ge=2, le=10_000)] = Field(
        4, description="rollouts of one question, compared with each other"
    )
    revisit_share: Share = Field(
        0.0,
        description="share of the groups that get an earlier question whose rewards differed, while there are any; "
        "a resumed run begins with none",
    )
    lr: PositiveNumber = Field(5e-6, description="learning rate of AdamW, constant")
    clip_low: Share = Field(0.2, description="the probability ratio is clipped below 1 − clip_low")
    clip_high: NotNegativeNumber = Field(0.3, description="the probability ratio is clipped above 1 + clip_high")
    kl_coef: NotNegativeNumber = Field(
        0.0, description="weight of the KL divergence from the starting model, in nats per token; 0 leaves it out"
    )
    minibatches: Positive = Field(1, description="optimizer steps per GRPO step, each on a part of the groups")
    micro_batch: Positive = Field(
        8, description="sequences per forward pass, also in sft; verl packs GRPO's by tokens instead"
    )
    max_grad_norm: PositiveNumber = Field(1.0, description="L2 norm to which a larger gradient is scaled down")
    save_every: Positive = Field(5, description="steps between two checkpoints")
    keep_checkpoints: Positive = Field(2, description="newest checkpoints that are kept")


class SftSettings(Section):
    """Supervised fine-tuning on the training questions' gold SQL, before GRPO; its result is cached on disk."""

    steps: NotNegative = Field(16, description="optimizer steps; 0 starts GRPO from the model as it is")
    batch: Count = Field(8, description="demonstrations in one step, each task type by its share in the file")
    lr: PositiveNumber = Field(2e-4, description="peak learning rate of AdamW; rises over a tenth, then falls linearly")


class LocalSettings(Section):
    """The backend `local`, which samples and trains on a CPU."""

    cache_dir: Path = Field(VAR / "cache", description="folder of converted and of fine-tuned models, also of verl's")
    threads: Annotated[int, Field(ge=0, le=1024)] = Field(0, description="torch threads; 0 takes all cores")
    bf16: bool | None = Field(
        None, description="bf16 in training and sampling; none uses it where the CPU multiplies it faster than fp32"
    )
    max_batch: Count = Field(16, description="requests that are generated together")
    batch_window_s: Seconds = Field(
        0.15, description="seconds without a new request after which an idle sampler starts a batch"
    )
    trained_per_group: NotNegative = Field(
        0,
        description="rollouts of each group that are trained, those with the highest and with the lowest rewards; "
        "0 trains all",
    )
    warmup_steps: NotNegative = Field(
        0, description="GRPO steps with a lower learning rate, which rises to train.lr in equal parts"
    )
    frozen_share: Annotated[float, Field(ge=0.0, lt=1.0)] = Field(
        0.0,
        description="share of the layers, the lowest, that GRPO leaves as they are, and the embedding with them; "
        "saves their backward pass",
    )
    max_context: Positive = Field(
        2048, description="tokens of prompt and reply together; a request for more ends its rollout"
    )

    @field_validator("trained_per_group")
    @classmethod
    def _can_be_compared(cls, count: int) -> int:
        if count == 1:
            raise ValueError("one rollout alone has no advantage, so nothing would be learned; give 2 or more, or 0")
        return count


class VerlSettings(Section):
    """The backend `verl`, which samples and trains on GPUs."""

    device: Literal["gpu", "npu"] = Field(
        "gpu", description="gpu, or npu for Ascend NPUs, on which it was never run; n_gpus and others then count NPUs"
    )
    n_gpus: Positive = Field(1, description="GPUs of each host")
    nnodes: Positive = Field(1, description="hosts of the Ray cluster")
    lora_rank: NotNegative = Field(0, description="rank of the LoRA adapters that are trained; 0 trains all weights")
    trainer_mode: Literal["sync", "colocate_async", "separate_async"] = Field(
        "sync", description="verl's trainer; separate_async rolls out on half of the GPUs and needs two or more"
    )
    level: Literal["trajectory", "transition"] = Field(
        "trajectory", description="a training sequence holds the turns that continue each other, or one turn"
    )
    gpu_memory_gb: Literal["auto", "24", "40", "80"] = Field(
        "auto", description="GB of GPU memory to plan for; auto goes by the smallest GPU that nvidia-smi shows"
    )
    endpoints: Positive = Field(4, description="processes that render and parse conversations for the policy")
    test_every: NotNegative = Field(0, description="steps between two validations; 0 validates before and after only")
    dynamic_sampling: NotNegative = Field(
        0,
        description="run up to so many times a step's rollouts until as many groups have rewards that differ as a step "
        "has questions (DAPO); 0 trains on those that there are",
    )
    host: str = Field("127.0.0.1", description="address of this host that other hosts reach; needed for nnodes > 1")
    config: dict[str, Any] = Field(
        default_factory=dict,
        description="verl's own configuration, key by key: verl.config.actor_rollout_ref.rollout.max_num_seqs=512",
    )

    @field_validator("dynamic_sampling")
    @classmethod
    def _leaves_room(cls, times: int) -> int:
        if times == 1:
            raise ValueError("the first group whose rewards are equal would end the run; give 2 or more, or 0")
        return times


class TrackingSettings(Section):
    """Services that are sent a run's metrics and rollouts. None of them can stop a run."""

    to: tuple[Literal["wandb", "swanlab", "tensorboard"], ...] = Field(
        (), description="trackers: wandb, swanlab, tensorboard; several with commas (extra `tracking`)"
    )
    project: str = Field("sql-agent", description="name of the project there")
    offline: bool = Field(
        False, description="write to runs/NAME/tracking and send nothing, for `wandb sync` and `swanlab sync`"
    )
    rollouts: NotNegative = Field(32, description="rollouts of each step and validation set that are sent as a table")
    checkpoint: bool = Field(False, description="send the last checkpoint's model when the run ends (wandb, swanlab)")
