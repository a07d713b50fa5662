"""What must hold between the tables of messages at every commit, whatever was called in whatever order."""

from typing import Any

from tests.support import database

# Each: a sentence, and the rows that break it.
LAWS = {
    "an unsettled message has exactly one narrow row, a settled one none": """
    SELECT m.id, m.ended, n.count FROM runstate.messages m CROSS JOIN LATERAL (
      SELECT (SELECT count(*) FROM runstate.queue_ready r WHERE r.space_id = m.space_id AND r.seq = m.seq)
           + (SELECT count(*) FROM runstate.queue_leased l WHERE l.space_id = m.space_id AND l.seq = m.seq)
             AS count) n
     WHERE n.count <> CASE WHEN m.ended IS NULL THEN 1 ELSE 0 END""",
    "a narrow row is that of its message, mailbox and scope": """
    SELECT n.message_id, n.seq FROM (
      SELECT space_id, seq, message_id, mailbox_id, scope_id, a0, a1, a2, lane, rank, deadline
        FROM runstate.queue_ready
      UNION ALL
      SELECT space_id, seq, message_id, mailbox_id, scope_id, a0, a1, a2, lane, rank, deadline
        FROM runstate.queue_leased) n
      LEFT JOIN runstate.messages m ON m.space_id = n.space_id AND m.id = n.message_id
      LEFT JOIN runstate.mailboxes b ON b.space_id = n.space_id AND b.id = n.mailbox_id
      LEFT JOIN runstate.scopes s ON s.space_id = n.space_id AND s.id = n.scope_id
     WHERE (m.seq, m.mailbox_id, m.scope_id, m.root_id)
           IS DISTINCT FROM (n.seq, n.mailbox_id, n.scope_id, n.a0)
        OR (s.path[1], s.path[2], s.path[3]) IS DISTINCT FROM (n.a0, n.a1, n.a2)
        OR n.lane <> m.lane OR (m.task_key IS NULL) <> (m.lane = 0)
        OR n.rank <> CASE WHEN b.mode = 'INBOX' THEN 0 ELSE -m.priority END
        OR n.deadline IS DISTINCT FROM LEAST(m.deadline, s.effective_deadline)""",
    "each scope with unsettled work in an INBOX has one head, delivered or deliverable": """
    SELECT w.mailbox_id, w.scope_id, w.heads FROM (
      SELECT n.space_id, n.mailbox_id, n.scope_id, count(*) FILTER (WHERE n.head) AS heads FROM (
        SELECT space_id, mailbox_id, scope_id, deliverable AS head FROM runstate.queue_ready
        UNION ALL
        SELECT space_id, mailbox_id, scope_id, true FROM runstate.queue_leased) n
       GROUP BY n.space_id, n.mailbox_id, n.scope_id) w
      JOIN runstate.mailboxes b ON b.space_id = w.space_id AND b.id = w.mailbox_id
      JOIN runstate.scopes s ON s.space_id = w.space_id AND s.id = w.scope_id AND s.effective = 'ACTIVE'
     WHERE b.mode = 'INBOX' AND w.heads <> 1""",
    "everything that waits in a WORK mailbox is deliverable": """
    SELECT r.message_id FROM runstate.queue_ready r
      JOIN runstate.mailboxes b ON b.space_id = r.space_id AND b.id = r.mailbox_id
     WHERE b.mode = 'WORK' AND NOT r.deliverable""",
    "every row that waits stands in a lane that fetches probe": """
    SELECT r.message_id FROM runstate.queue_ready r WHERE NOT EXISTS (
      SELECT 1 FROM runstate.queue_lanes d WHERE d.space_id = r.space_id AND d.a0 = r.a0
         AND d.mailbox_id = r.mailbox_id AND d.lane = r.lane AND d.rank = r.rank)""",
    "attempts never exceed what the mailbox allows": """
    SELECT n.id, n.attempt FROM (
      SELECT space_id, mailbox_id, id, attempt FROM runstate.messages
      UNION ALL
      SELECT space_id, mailbox_id, message_id, attempt FROM runstate.queue_leased
      UNION ALL
      SELECT space_id, mailbox_id, message_id, attempt + 1 FROM runstate.queue_ready) n
      JOIN runstate.mailboxes b ON b.space_id = n.space_id AND b.id = n.mailbox_id
     WHERE n.attempt > b.max_attempts OR n.attempt < 0""",
    "a delivery comes due no later than its deadline and its lease": """
    SELECT l.message_id FROM runstate.queue_leased l WHERE l.due_at > LEAST(l.expires_at, l.deadline)""",
    "nothing unsettled is left in an ended run that has been tidied": """
    SELECT m.id FROM runstate.messages m
      JOIN runstate.scopes s ON s.space_id = m.space_id AND s.id = m.scope_id
     WHERE m.ended IS NULL AND s.effective <> 'ACTIVE' AND NOT EXISTS (
       SELECT 1 FROM runstate.scope_tidies t WHERE t.space_id = s.space_id AND t.scope_id = ANY (s.path))""",
    "a task that succeeded has an outcome, and nothing else has": """
    SELECT m.id FROM runstate.messages m
     WHERE (m.outcome IS NOT NULL) <> (m.ended IS NOT DISTINCT FROM 'ACKED' AND m.task_key IS NOT NULL)""",
}


def broken(database_url: str) -> dict[str, list[Any]]:
    """The laws that do not hold, each with the first rows that break it."""
    found = {law: database.fetch(database_url, f"{sql} LIMIT 5") for law, sql in LAWS.items()}
    return {law: [tuple(row) for row in rows] for law, rows in found.items() if rows}
