"""Turn questions into finished rollouts: store, runners and LLM proxy, built on agent-lightning."""
