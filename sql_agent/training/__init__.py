"""Train a policy with the backend `local` or `verl`: the only package that imports torch, verl and ray."""
