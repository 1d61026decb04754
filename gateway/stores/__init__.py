"""Where limits are counted."""
