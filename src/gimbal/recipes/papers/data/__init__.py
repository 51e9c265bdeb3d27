"""Which tasks and demonstrations, and in which order?"""
