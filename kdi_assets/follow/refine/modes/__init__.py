"""What each mode of a refined table computes, where it is more than the new rows."""
