"""Every limit of the wire and of the inside, by name, unit last. http-api.md gives the wire's figures."""

from typing import Final

# Bodies and texts
body_bytes_max: Final = 256 * 1024
batch_bytes_max: Final = 4 * 1024 * 1024
user_json_bytes_max: Final = 65_536
json_depth_max: Final = 128
text_chars_max: Final = 2_000

# Connections
head_bytes_max: Final = 64 * 1024  # the target and headers of one request
pipelined_max: Final = 100  # requests in line on one connection

# Names and ids
name_chars_max: Final = 256
key_chars_max: Final = 512
holder_chars_max: Final = 256
space_id_chars_max: Final = 64
token_chars_max: Final = 256
key_spaces_max: Final = 100
limit_max: Final = 10**12
idempotency_key_chars_max: Final = 255

# Leases and waits
lease_s_min: Final = 1
lease_s_max: Final = 3_600
lease_s_default: Final = 30
wait_ms_max: Final = 30_000
attempts_max: Final = 100
attempts_default: Final = 5

# Queues
batch_tasks_max: Final = 500
admit_max: Final = 50
priority_max: Final = 100
delay_s_max: Final = 366 * 86_400
backlog_max: Final = 1_000_000_000

# Task groups
group_expected_max: Final = 100
group_members_max: Final = 1_000

# Permits
units_max: Final = 1_000_000_000
needs_units_max: Final = 4  # pools, or allowances, of one task
needs_money_max: Final = 2
window_s_max: Final = 86_400
cooldown_s_max: Final = 86_400.0
ttl_s_default: Final = 60
ttl_s_max: Final = 3_600

# Budgets
minor_max: Final = 10**18  # minor units of any one amount
scale_max: Final = 9

# Barriers
barrier_target_max: Final = 10_000

# Scopes
scope_depth_max: Final = 32
child_limit_max: Final = 10_000
child_limit_default: Final = 1_000
deadline_year_max: Final = 9_999

# Timers
timer_ahead_s_max: Final = 366 * 86_400
timers_polled_max: Final = 500

# Listings
page_max: Final = 500
page_default: Final = 100

# Events
events_scan_max: Final = 5_000  # rows a look reads at most; behind a filter the cursor moves on
watch_s_default: Final = 5.0
watch_s_max: Final = 8.0  # clients in the field stop reading after 10
stream_comment_s: Final = 15.0
tail_events_max: Final = 500  # of a space that is watched, kept in memory
tail_unused_s: Final = 60.0
tails_max: Final = 500
types_chars_max: Final = 4_000
journal_days_ahead: Final = 3

# Keys: how long a replica may trust what it has read of one. Revocation is effective everywhere within 5 s.
key_trust_s: Final = 3.0
keys_remembered_max: Final = 10_000

# Reports
listed_max: Final = 500
counted_max: Final = 100_000
waits_told_max: Final = 1_000
waits_looked_at_max: Final = 5_000
circle_holders_max: Final = 50
blockers_max: Final = 50  # holders of one pool that are told of
heads_looked_at_max: Final = 500

# Inside
lock_timeout_ms: Final = 500
row_callers_max: Final = 8  # calls of a replica that stand at one row at once
statement_timeout_ms: Final = 10_000
connect_timeout_s: Final = 5.0
answer_s_min: Final = 2.0  # the least that a statement gets, however little is left of the outage wait
step_s_max: Final = 11.0  # longer than any statement may take
unacknowledged_ms_max: Final = 3_000
close_s_max: Final = 2.0
stall_read_bytes_min: Final = 256 * 1024  # what a caller must read of a large answer in the time of a stall
sequencer_batch: Final = 500
sequencer_pause_s: Final = 0.01
tick_events_max: Final = 5_000
notify_payload_bytes_max: Final = 7_900
listener_heartbeat_s: Final = 5.0
listener_timeout_s: Final = 2.0
drain_s_max: Final = 10.0
