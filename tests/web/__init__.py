"""The web application of docs/web_applications.md, in real processes and with real clients."""
