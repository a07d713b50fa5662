"""What every route shares: callers, bodies, replies, long polls."""
