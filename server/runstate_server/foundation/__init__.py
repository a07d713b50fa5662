"""What every floor stands on: the error table, the bounds, ids, the database pool, logs."""
