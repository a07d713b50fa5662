"""One folder is one room is one word of the API."""
