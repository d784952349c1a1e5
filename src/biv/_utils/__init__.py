"""Helpers that several packages share; nothing for users."""
