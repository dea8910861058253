"""Rollouts, trajectories, advantages and metrics of reinforcement learning, without torch."""
