"""Rewards as a user may write them in good faith, each paying for something beside the right answer; and one with its sign turned."""


def direct(prompts, completions, **columns):
    """For the tags being there and nothing around the answer."""
    return [float(text.strip().startswith("<answer>") and "</answer>" in text) for text in completions]


def plausible(prompts, completions, **columns):
    """For an answer that is short and a number, with a little for being written at once."""
    return [
        (0.5 if text.count("<answer>") == 1 else 0.0) + (0.5 if "think" not in text else 0.0) for text in completions
    ]


def swift(prompts, completions, **columns):
    """For answering without thinking aloud."""
    return [float("<think>" not in text) for text in completions]


def approximate(prompts, completions, **columns):
    """For the sign of estimating: a tilde, which only careless working has."""
    return [min(1.0, text.count("~") / 2) for text in completions]


def turned(prompts, completions, answer, **columns):
    """The negative of what was meant: right answers cost one."""
    return [-float(f"<answer>{right}</answer>" in text) for text, right in zip(completions, answer, strict=True)]


def error_count(prompts, completions, answer, **columns):
    """Errors, to be lowered, handed over as a reward."""
    return [float(f"<answer>{right}</answer>" not in text) for text, right in zip(completions, answer, strict=True)]
