-- What time-driven work is due, in one look: an idle replica asks once per round and runs no sweep for
-- nothing. Reads the due indexes of the rooms. Locks: none.
CREATE FUNCTION kernel.sweeps_due() RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz := kernel.kernel_now();
BEGIN
  RETURN pg_catalog.array_remove(ARRAY[
    CASE WHEN EXISTS (SELECT 1 FROM runstate.once o WHERE o.state = 'HELD' AND o.due_at <= v_now)
      THEN 'once_sweep' END,
    CASE WHEN EXISTS (SELECT 1 FROM runstate.claims c WHERE c.held AND c.due_at <= v_now)
      THEN 'claim_sweep' END, CASE WHEN EXISTS (SELECT 1 FROM runstate.queue_leased l WHERE l.due_at <= v_now)
        OR EXISTS (SELECT 1 FROM runstate.queue_ready r WHERE r.deadline <= v_now) THEN 'message_sweep' END,
    CASE WHEN EXISTS (SELECT 1 FROM runstate.scopes s WHERE s.effective = 'ACTIVE' AND s.deadline <= v_now)
      THEN 'scope_sweep' END,
    CASE WHEN EXISTS (SELECT 1 FROM runstate.scope_tidies t) THEN 'scope_tidy_sweep' END,
    CASE WHEN EXISTS (SELECT 1 FROM runstate.outbox o) THEN 'journal_step' END], NULL);
END $$;
