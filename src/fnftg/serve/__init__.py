"""The HTTP server: the API, its Python client, and the web page."""
