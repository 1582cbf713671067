"""A pond that is served elsewhere, with the methods of one that is open here. Everything goes over Arrow Flight."""
