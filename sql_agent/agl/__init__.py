"""Everything that touches agent-lightning: its store, runner, agent, LLM proxy, spans and adapter."""
