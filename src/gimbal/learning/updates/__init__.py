"""Who learns: the models of an update, and the losses that move them."""
