"""The backend `verl`: GRPO on GPUs by verl's trainer, with rollouts from agent-lightning."""
