"""Layouts: which rows share an object, so that queries need few of them."""
