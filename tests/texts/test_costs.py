"""Texts made to take long are read in time that is in proportion to their length."""

from contextlib import suppress

import pytest

from orchestrator.models.reading import parted
from orchestrator.models.text.forms import CallScreen
from orchestrator.models.text.protocol import FORMS
from orchestrator.nodes.extract import find_answer
from orchestrator.nodes.plans import PlanFault
from orchestrator.nodes.plans.blueprint import read_blueprint
from orchestrator.nodes.plans.step_list import read_steps
from orchestrator.nodes.respond import answer_in, thought_in
from tests.support.costs import in_proportion
from tests.support.sizes import sized
from tests.texts.adversarial import TEXTS
from tests.texts.test_readings import FORM_OF, OFFERS


@pytest.mark.parametrize("name", [*TEXTS][:: sized(3, 1)])
def test_a_text_is_read_in_proportion_to_its_length(name: str) -> None:
    def every_reader(size: int) -> None:
        text = TEXTS[name](size)
        parted(text)
        thought_in(text)
        answer_in(text, "Finish")
        for answer in FORM_OF.values():
            find_answer(text, answer)
            find_answer(text, answer, announced=True)
        for form in FORMS.values():
            form.parse(text, OFFERS)
            form.parse(form.defused(text, OFFERS), OFFERS)
            screen = CallScreen(form)
            for start in range(0, len(text), 512):
                screen.feed(text[start : start + 512])
        with suppress(PlanFault):
            read_steps(text)
        with suppress(PlanFault):
            read_blueprint(text)

    in_proportion(every_reader, 250)
