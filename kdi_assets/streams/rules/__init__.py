"""What becomes of a message: its record, its columns, its verdict, and the rules that decide it."""
