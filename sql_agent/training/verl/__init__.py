"""The backend `verl`: verl's trainer does GRPO on GPUs, agent-lightning runs the rollouts."""
