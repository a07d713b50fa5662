"""The reports, one module for each route. They go by the indexes that are named beside them, whatever the
planner thinks of the tables."""

from typing import Final

# The replicas that have shown themselves lately: each says every five seconds that it is alive.
ALIVE: Final = """ANY (ARRAY(
    SELECT r.id FROM runstate.replicas r
     WHERE r.seen_at > CAST(:now AS timestamptz) - interval '13 seconds'))"""
