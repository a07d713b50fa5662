"""The one exception of the driver."""


class EmbeddedError(Exception):
    """The embedded database cannot be used; the text is one line that says why and what helps."""
