"""The routes of `/v0`: a file a noun, and `table`, which says which path and method lead to which of them."""
