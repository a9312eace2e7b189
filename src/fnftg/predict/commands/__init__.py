"""The prediction commands."""
