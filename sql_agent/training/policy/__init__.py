"""The policy model: loading, forward passes and supervised fine-tuning."""
