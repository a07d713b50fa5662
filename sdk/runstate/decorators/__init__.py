"""Sugar over handles: functions wrapped where they are defined, and called as before."""
