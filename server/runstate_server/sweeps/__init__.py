"""Time-driven work: steps that run in every replica, none of them a leader."""
