"""Looking at tables, keeping them in shape, erasing from them."""
