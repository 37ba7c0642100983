"""Parts that the drivers of both SQL databases share. Each driver has its own dialect in its folder `sql`."""
