"""The table that rows go to: its columns, their types and what fits into them."""
