"""Operating: looking at tables, keeping them in shape, erasing from them, and `kdi doctor`."""
