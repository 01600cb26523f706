"""The screens: pages that the server renders, which its scripts then keep up to date.

Each screen is an address. The first paint needs no script; afterwards a page asks for itself again and takes over what
changed, so a row and a card are written in one place, the templates.
"""
