"""What the code did on the day it was frozen: journals, results, drawings, terminal texts, helps and messages."""
