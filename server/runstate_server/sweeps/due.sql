-- What time-driven work is due, in one look: an idle replica asks once per round and runs no sweep for
-- nothing. Reads the first entry of each room's due index, which the order asks for by name. Locks: none.
CREATE FUNCTION kernel.sweeps_due() RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz := kernel.kernel_now();
BEGIN
  RETURN pg_catalog.array_remove(ARRAY[
    CASE WHEN (SELECT o.due_at FROM runstate.once o WHERE o.state = 'HELD' ORDER BY o.due_at LIMIT 1) <= v_now
      THEN 'once_sweep' END,
    CASE WHEN (SELECT c.due_at FROM runstate.claims c WHERE c.held ORDER BY c.due_at LIMIT 1) <= v_now
      THEN 'claim_sweep' END,
    CASE WHEN (SELECT l.due_at FROM runstate.queue_leased l ORDER BY l.due_at LIMIT 1) <= v_now
        OR (SELECT r.deadline FROM runstate.queue_ready r WHERE r.deadline IS NOT NULL
             ORDER BY r.deadline LIMIT 1) <= v_now
      THEN 'message_sweep' END,
    CASE WHEN (SELECT g.due_at FROM runstate.grants g WHERE g.ended IS NULL
                ORDER BY g.due_at LIMIT 1) <= v_now
        OR (SELECT w.hold_until FROM runstate.line_waiters w WHERE w.state = 'SIGNALED'
             ORDER BY w.hold_until LIMIT 1) <= v_now
      THEN 'permit_sweep' END,
    CASE WHEN (SELECT b.settle_by FROM runstate.budget_reservations b WHERE b.state = 'ACTIVE'
                  AND b.settle_by IS NOT NULL ORDER BY b.settle_by LIMIT 1) <= v_now
      THEN 'budget_sweep' END,
    CASE WHEN EXISTS (SELECT 1 FROM runstate.allowances a WHERE a.waited) THEN 'allowance_sweep' END,
    CASE WHEN (SELECT s.deadline FROM runstate.scopes s
                WHERE s.effective = 'ACTIVE' AND s.deadline IS NOT NULL ORDER BY s.deadline LIMIT 1) <= v_now
      THEN 'scope_sweep' END,
    CASE WHEN EXISTS (SELECT 1 FROM runstate.scope_tidies t) THEN 'scope_tidy_sweep' END,
    CASE WHEN EXISTS (SELECT 1 FROM runstate.outbox o) THEN 'journal_step' END], NULL);
END $$;
