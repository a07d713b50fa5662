-- What time-driven work is due, in one look: an idle replica asks once per round and runs no sweep for
-- nothing. Reads the first entry of each room's due index, which the order asks for by name. Locks: none.
-- next_s: seconds until the next timer is due, null when none is set.
CREATE FUNCTION kernel.sweeps_due(OUT due text[], OUT next_s double precision)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz := kernel.kernel_now();
  v_timer timestamptz;
BEGIN
  SELECT t.fire_at INTO v_timer FROM runstate.timers t WHERE t.state = 'PENDING' ORDER BY t.fire_at LIMIT 1;
  next_s := kernel.seconds_until(v_timer, v_now);
  due := pg_catalog.array_remove(ARRAY[
    CASE WHEN v_timer <= v_now THEN 'timer_sweep' END,
    CASE WHEN (SELECT o.due_at FROM runstate.once o WHERE o.state = 'HELD' ORDER BY o.due_at LIMIT 1) <= v_now
      THEN 'once_sweep' END,
    CASE WHEN (SELECT c.due_at FROM runstate.claims c WHERE c.held ORDER BY c.due_at LIMIT 1) <= v_now
      THEN 'claim_sweep' END,
    CASE WHEN (SELECT l.due_at FROM runstate.queue_leased l ORDER BY l.due_at LIMIT 1) <= v_now
        OR (SELECT r.deadline FROM runstate.queue_ready r WHERE r.deadline IS NOT NULL
             ORDER BY r.deadline LIMIT 1) <= v_now
      THEN 'message_sweep' END,
    CASE WHEN EXISTS (SELECT 1 FROM runstate.group_notices n)
        OR (SELECT g.deadline FROM runstate.task_groups g WHERE g.state <> 'FINALIZED'
               AND g.deadline IS NOT NULL ORDER BY g.deadline LIMIT 1) <= v_now
      THEN 'group_sweep' END,
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
