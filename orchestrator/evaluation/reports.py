"""Reports of an evaluation: JUnit XML for continuous integration, and a picture of cost and accuracy as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

from orchestrator.json import storable
from orchestrator.redaction import redacted
from orchestrator.visible import shown as visible

if TYPE_CHECKING:
    from orchestrator.evaluation.results import Evaluation, VariantResult

_WIDTH, _HEIGHT = 720, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 150, 24, 52
_STYLE = (
    ".e{--ink:#182230;--soft:#5d6b82;--line:#cdd3dd;--mark:#0067ab;--front:#00795a}"
    "@media(prefers-color-scheme:dark){.e{--ink:#e8ecf4;--soft:#9aa7bd;--line:#37435a;--mark:#62b5f2;--front:#2fc596}}"
    ".e text{font:12px system-ui,sans-serif;fill:var(--soft)}.e .name{fill:var(--ink);font-weight:600}"
    ".e .axis{stroke:var(--line)}.e .bar{stroke:var(--mark);stroke-width:1.5;opacity:.5}.e .dot{fill:var(--mark)}"
    ".e .best{fill:var(--front)}.e .front{stroke:var(--front);stroke-width:1.5;fill:none;stroke-dasharray:5 4}"
)


def to_junit(found: Evaluation) -> str:
    """Return a result as JUnit XML: a suite for each variant, a test case for each row.

    Texts are those of the kept wrong cases, with secrets redacted; characters that XML cannot have are replaced.
    """
    wrong = {(one.variant, one.index, one.repeat): one for one in found.wrong}
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f"<testsuites name={_attribute(found.name)}>"]
    for variant in found.variants:
        cases = [] if found.verdicts is None else found.verdicts.cases(variant.name)
        failures = sum(not passed for _, _, passed, _ in cases)
        seconds = sum(one[3] for one in cases)
        lines.append(
            f'  <testsuite name={_attribute(variant.name)} tests="{len(cases)}" failures="{failures}" errors="0" '
            f'time="{seconds:.3f}">'
        )
        for row, repeat, passed, lasted in cases:
            key = found.verdicts.keys[row] if found.verdicts is not None else ""
            name = key if repeat == 1 else f"{key} ({repeat})"
            case = f'    <testcase classname={_attribute(variant.name)} name={_attribute(name)} time="{lasted:.3f}"'
            if passed:
                lines.append(f"{case}/>")
                continue
            one = wrong.get((variant.name, row, repeat))
            said = "wrong" if one is None else f"answer {one.answer!r}, expected {one.expected!r}"
            more = "" if one is None else f"run {one.run_id}, {one.status}{f': {one.why}' if one.why else ''}"
            lines += [
                f"{case}>",
                f"      <failure message={_attribute(said)}>{escape(_text(more), quote=False)}</failure>",
                "    </testcase>",
            ]
        lines.append("  </testsuite>")
    return "\n".join([*lines, "</testsuites>", ""])


def _attribute(text: str) -> str:
    return quoteattr(_text(text))


def _text(text: str) -> str:
    """Return a text that XML 1.0 can have, without secrets and without characters that deceive a reader."""
    said = visible(storable(str(redacted(text))))
    return "".join(sign if _is_xml(sign) else "\ufffd" for sign in said)


def _is_xml(sign: str) -> bool:
    return sign in "\t\n" or "\x20" <= sign <= "\ud7ff" or "\ue000" <= sign <= "\ufffd" or sign > "\uffff"


def front(variants: Sequence[VariantResult]) -> list[VariantResult]:
    """Return the variants that no other one beats in cost and in accuracy, the cheapest first."""
    best: list[VariantResult] = []
    for one in sorted(variants, key=lambda each: (_cost(each, variants), -each.accuracy)):
        if not best or one.accuracy > best[-1].accuracy:
            best.append(one)
    return best


def _cost(one: VariantResult, variants: Sequence[VariantResult]) -> float:
    """Return the cost of a run, or its tokens if not all costs are known."""
    return one.cost_per_run if _has_costs(variants) else one.tokens / (one.runs or 1)


def _has_costs(variants: Sequence[VariantResult]) -> bool:
    return all(one.priced for one in variants) and any(one.cost for one in variants)


def to_svg(variants: Sequence[VariantResult]) -> str:
    """Return a picture: a point for each variant, to the right by the cost of a run, upwards by its accuracy.

    Bars are 95 % intervals. A dashed line joins the variants that none beats in both (the Pareto front).
    """
    most = max((_cost(one, variants) for one in variants), default=0.0) or 1.0
    best = {id(one) for one in front(variants)}
    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}"'
    said = f"Accuracy and cost of {len(variants)} variants"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="e" {size} role="img" aria-label="{said}">'
    parts = [f"{head}<style>{_STYLE}</style>"]
    parts += _axes(most, "cost of a run" if _has_costs(variants) else "tokens of a run")

    def place(one: VariantResult, accuracy: float) -> tuple[float, float]:
        return _x(_cost(one, variants) / most), _y(accuracy)

    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(one, one.accuracy) for one in front(variants)))
    parts.append(f'<polyline class="front" points="{line}"/>')
    taken: list[tuple[float, float]] = []
    for one in sorted(variants, key=lambda each: -each.accuracy):
        x, y = place(one, one.accuracy)
        low, high = place(one, one.low)[1], place(one, one.high)[1]
        label = y + 4
        while label < _HEIGHT and any(abs(label - other) < 14 and abs(x - beside) < 140 for beside, other in taken):
            label += 14
        if label < _HEIGHT:  # a label below the picture takes no place from others
            taken.append((x, label))
        said = escape(visible(storable(one.name)))
        parts.append(
            f"<g><title>{said}: {one.accuracy:.1%} ({one.low:.1%} to {one.high:.1%})</title>"
            f'<path class="bar" d="M{x:.1f} {low:.1f}V{high:.1f}"/>'
            f'<circle class="dot{" best" if id(one) in best else ""}" cx="{x:.1f}" cy="{y:.1f}" r="5"/>'
            f'<text class="name" x="{x + 10:.1f}" y="{label:.1f}">{said}</text></g>'
        )
    return "".join([*parts, "</svg>\n"])


def _axes(most: float, title: str) -> list[str]:
    parts = []
    for step in range(5):
        share = step / 4
        x, y = _x(share), _y(share)
        parts += [
            f'<path class="axis" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>',
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>',
            f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{most * share:.3g}</text>',
        ]
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle:.1f}" y="{_HEIGHT - 12}" text-anchor="middle">{title}</text>')
    parts.append(f'<text x="{_LEFT - 48}" y="{_TOP - 12}">accuracy</text>')
    return parts


def _x(share: float) -> float:
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


def _y(share: float) -> float:
    return _HEIGHT - _BOTTOM - min(1.0, max(0.0, share)) * (_HEIGHT - _TOP - _BOTTOM)
