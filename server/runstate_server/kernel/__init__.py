"""The floor under all rooms: SQL that every room calls, its installer, and the one seam to run a function."""
