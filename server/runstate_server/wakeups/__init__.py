"""Waking sleepers: a wake-up is a hint, the table is the truth."""
