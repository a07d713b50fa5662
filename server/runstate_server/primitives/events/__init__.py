"""Events: the journal as readers see it.

Promises: every state change is one event, numbered 1..N per space without a gap; a reader that goes on from a
cursor sees every later event once, an effect never before its cause, on any replica; a cursor that cannot be
read on from is refused (CURSOR_EXPIRED), never silently moved. Tables: journal, journal_heads, epoch (all the
floor's). Locks: none; a first look waits for the sequencer row.
"""
