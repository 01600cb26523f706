"""The screens: pages that the server renders, which its scripts then keep up to date.

Each screen has a URL. The first paint needs no script; afterwards a page requests itself again and applies the changes,
so rows and cards are rendered only by the templates.
"""
