"""What touches the outside: every call is journaled before and after, and never made twice without asking."""
