"""A store around another one, which encodes what is written to it with a codec and decodes what is read."""
