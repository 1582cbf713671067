"""What is known of each object without opening it, so that queries can leave objects out."""
