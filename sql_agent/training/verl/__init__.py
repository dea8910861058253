"""The backend `verl`: verl's trainer does GRPO on GPUs, and agent-lightning runs the rollouts."""
