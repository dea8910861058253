"""The backend `local`: GRPO in one process on a CPU, with its own sampler, loss and checkpoints."""
