"""Which rollout, turn or decision earned the reward?"""
