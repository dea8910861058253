"""Send what a run writes to trackers: wandb, SwanLab, TensorBoard, AgentOps."""
