"""Runstate."""
