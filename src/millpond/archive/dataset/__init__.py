"""Data sets: files that others wrote, and what is known of each of them."""
