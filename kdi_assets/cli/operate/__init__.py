"""Commands for whoever runs it."""
