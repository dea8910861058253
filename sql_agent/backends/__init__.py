"""The training backends and what they share: the only package that imports torch, verl and ray."""
