"""From a question to a finished rollout: store, runners, LLM proxy. The package that imports agent-lightning."""
