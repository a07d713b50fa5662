"""Spaces. A space is a tenant: nothing in one is visible from another. A key covers one or more spaces.

Promises: only a hash of a key is stored; a revoked or expired key is refused everywhere within 5 s; every
statement of every room filters by space. Tables: spaces, api_keys, api_key_spaces. Locks: the rows written.
"""
