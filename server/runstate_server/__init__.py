"""The Runstate server: stateless replicas over PostgreSQL, which keeps the truth."""

__version__ = "0.1.0"
