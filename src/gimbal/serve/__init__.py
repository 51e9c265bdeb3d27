"""An OpenAI-compatible endpoint over any engine of tokens, for agents written in any framework. It records what it answers."""
