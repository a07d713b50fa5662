"""Ops. What goes on in a run and in a space: who holds what, who waits for what and why, how deep queues are.

No states. Promises: read only; every list and count is bounded, so a large space answers as a small one does;
a wait that is over is gone within seconds, also when its replica was killed. Nothing decides by what is told
here. Table: waits. Locks: none but the rows that a replica writes of its own waits.
"""
