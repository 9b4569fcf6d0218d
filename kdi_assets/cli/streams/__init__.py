"""Commands of streams: `kdi plan`, `drain`, `peek`, `audit`, `history`, `replay`, `dead-letters`, `resolve`."""
