"""One file per room of the API: its verbs, as methods of handles."""
