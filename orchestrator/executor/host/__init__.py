"""The runs that one executor holds: taking them up, commands to them, following them, giving them back."""
