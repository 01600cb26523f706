"""Steps: one attempt of one activation, from the state that its node gets to the record that says how it ended.

context      what the node is handed
node_call    runs the node, or opens and lands the graph inside
attempt      one attempt, and the record of its end
"""
