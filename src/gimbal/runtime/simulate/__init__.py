"""The real pipeline on a virtual clock: forecasts of throughput, idleness, ages and traffic."""
