"""An OpenAI-compatible endpoint over any token engine, for agents written in any framework. It records its answers."""
