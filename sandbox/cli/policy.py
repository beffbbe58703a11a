"""Try an operator's rules before they decide anything: test cases, explain a decision, print the Cedar schema.

No server is started: rules see nothing but reviewed files and verified identity, so neither does this. Exit status 0;
1 when a case is not decided as written, or a rule or case is not valid; `policy explain` exits with 3 for a denial.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from sandbox.cli import options
from sandbox.cli.policy_drivers import Drivers, load_cases, load_drivers
from sandbox.cli.report import line_of
from sandbox.cli.rules import load_rules
from sandbox.errors import CallRefused, PolicyError
from sandbox.policy.cases import Report, run_cases
from sandbox.policy.cedar import PolicySet
from sandbox.policy.explain import explain
from sandbox.policy.request import CALL, PROMPT, READ, Principal, PromptFacts, Request, ResourceFacts
from sandbox.policy.schema import check, schema_text

DENIED = 3
"""Exit status of ``explain`` when the answer is no."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    cases = actions.add_parser("test", help="decide each case of a file, and name the rules that no case needs")
    cases.add_argument("cases", type=options.path, metavar="CASES.yaml")
    cases.add_argument("--json", action="store_true", help="print the results as JSON")
    why = actions.add_parser("explain", help="which rule decides one request, and why the others do not")
    _add_request(why)
    schema = actions.add_parser("schema", help="print the Cedar schema of what is loaded, arguments included")
    for one, least in ((cases, "*"), (schema, "+")):
        one.add_argument("drivers", nargs=least, type=options.path, metavar="DRIVER.md")
    for one in (cases, why):
        one.add_argument("--rules", type=options.path, metavar="DIR", help="folder of Cedar rules")


def _add_request(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("driver", type=options.path, metavar="DRIVER.md")
    parser.add_argument("tool", nargs="?", metavar="TOOL", help="contract id of a bound tool")
    parser.add_argument("--args", default="{}", metavar="JSON", help="arguments of the call; `-` reads stdin")
    parser.add_argument("--uri", help="explain reading this resource instead of a call")
    parser.add_argument("--prompt", help="explain fetching this prompt instead of a call")
    parser.add_argument("--tenant", type=options.tenant, default="local")
    parser.add_argument("--user", type=options.user, default="")
    parser.add_argument("--agent", action="store_true", help="a program that acts in its own name, not a person")
    parser.add_argument("--group", action="append", default=[], help="group of the tenant; may be repeated")
    parser.add_argument("--json", action="store_true", help="print the explanation as JSON")


def execute(arguments: argparse.Namespace) -> int:
    """Run the chosen action."""
    if arguments.action == "schema":
        print(schema_text(load_drivers(arguments.drivers).tools.values()))
        return 0
    rules = load_rules(arguments.rules)
    return _test(arguments, rules) if arguments.action == "test" else _explain(arguments, rules)


def _checked(rules: PolicySet, drivers: Drivers) -> None:
    """Hold rules against contracts, as a start does.

    Raises:
        PolicyError: ``POL-006``, ``POL-007``.
    """
    problems = check(rules.rules, drivers.facts.values(), drivers.tools.values())
    errors = tuple(problem for problem in problems if problem.severity == "error")
    if errors:
        raise PolicyError(errors)


def _test(arguments: argparse.Namespace, rules: PolicySet) -> int:
    drivers, cases = load_cases(arguments.cases, arguments.drivers)
    _checked(rules, drivers)
    report = run_cases(rules, cases)
    if arguments.json:
        print(json.dumps(_as_json(report), indent=1))
    else:
        for result in report.results:
            print(line_of(result.line()))
        passed = sum(result.passed for result in report.results)
        print(f"{passed} of {len(report.results)} cases as written")
        if report.idle:
            print(line_of(f"no case makes these rules decide: {', '.join(report.idle)}"))
    return 0 if report.passed else 1


def _as_json(report: Report) -> dict[str, Any]:
    results = [
        {"name": result.case.name, "passed": result.passed, "expect": result.case.expect, **result.decision.record()}
        for result in report.results
    ]
    return {"passed": report.passed, "results": results, "idle": list(report.idle)}


def _explain(arguments: argparse.Namespace, rules: PolicySet) -> int:
    drivers = load_drivers([arguments.driver])
    _checked(rules, drivers)
    try:
        request = _request(arguments, drivers)
    except CallRefused as refusal:
        print(line_of(f"denied before policy is asked: {refusal}"))
        return DENIED
    answer = explain(rules, request)
    if arguments.json:
        verdicts = [
            {"rule": one.rule.id, "effect": one.rule.effect, "place": one.rule.place, "outcome": one.outcome}
            for one in answer.verdicts
        ]
        print(json.dumps({**answer.decision.record(), "verdicts": verdicts}, indent=1))
    else:
        print(*map(line_of, answer.lines()), sep="\n")
    return 0 if answer.decision.allowed else DENIED


def _request(arguments: argparse.Namespace, drivers: Drivers) -> Request:
    """Return the request that the arguments describe.

    Raises:
        UsageError: ``CLI-150``, there is no such tool or prompt.
        CallRefused: a step before policy refuses it.
    """
    groups = tuple(arguments.group)
    who = Principal(arguments.tenant, arguments.user, "Agent" if arguments.agent else "User", groups)
    driver = next(iter(drivers.facts.values()))
    common = {"now": drivers.now(), "client": {}, "calls": {"target": 0, "tenant": 0}}
    if arguments.uri is not None:
        checked = drivers.resource(driver.id, arguments.uri)
        target = ResourceFacts(driver, checked.text, checked.template)
        return Request(who, READ, target, {**common, "uri": checked.facts()})
    if arguments.prompt is not None:
        drivers.need_prompt(driver.id, arguments.prompt)
        return Request(who, PROMPT, PromptFacts(driver, arguments.prompt), {**common, "argument_names": []})
    from sandbox.cli.call import parse_arguments  # with its command's imports, only where it is needed

    tool = drivers.need_tool(driver.id, arguments.tool or "")
    facts = drivers.call_facts(tool, parse_arguments(arguments.args))
    return Request(who, CALL, tool, {**common, **facts})
