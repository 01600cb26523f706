"""A draft that is improved twice and then reviewed by a person: with Burr."""

from burr.core import ApplicationBuilder, State, action, default, when


@action(reads=["topic"], writes=["draft"])
def write(state: State) -> State:
    return state.update(draft=f"About {state['topic']}")


@action(reads=["draft", "rounds"], writes=["draft", "rounds", "improved"])
def improve(state: State) -> State:
    rounds = state["rounds"] + 1
    return state.update(draft=f"{state['draft']}, better", rounds=rounds, improved=rounds == 2)


@action(reads=["draft"], writes=["verdict"])
def review(state: State, verdict: str) -> State:
    return state.update(verdict=verdict)


application = (
    ApplicationBuilder()
    .with_actions(write, improve, review)
    .with_transitions(("write", "improve"), ("improve", "review", when(improved=True)), ("improve", "improve", default))
    .with_state(topic="tea", rounds=0)
    .with_entrypoint("write")
    .build()
)
_, _, state = application.run(halt_before=["review"])
print("waits:", state["draft"])
_, _, state = application.run(halt_after=["review"], inputs={"verdict": "fine"})
print("verdict:", state["verdict"], "after", state["rounds"], "rounds")
