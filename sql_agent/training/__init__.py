"""Train a policy with the backend `local` or `verl`. No other package imports torch, verl or ray."""
