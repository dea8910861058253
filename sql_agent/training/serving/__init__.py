"""The OpenAI-compatible server that samples from a policy and returns exact token ids."""
