"""What a program sees, and that it sees the same each time (G1, G2)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from sandbox_runs import NOW, Ended, answer, finish, program, run_program

from windlass.ports import Delivery, GuestCall, ProgramError, ProgramLimits
from windlass.process import Supervisor
from windlass.sandbox.programs import WasmSandbox

pytestmark = pytest.mark.asyncio(loop_scope="module")

BUSY = """
const order = [];
await Promise.all([1, 2, 3].map(async (n) => {
    const r = await tools.echo({ n, chance: Math.random() });
    order.push(r.n, Date.now() % 1e6);
    console.log('got', r);
    if (n !== 2) await tools.echo({ n: n * 10, chance: Math.random() });
}));
return { order, chance: Math.random() };
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox(compiled_cache: Path) -> AsyncIterator[WasmSandbox]:
    async with Supervisor() as supervisor:
        made = WasmSandbox(supervisor, compiled_cache, most=2)
        yield made
        await made.close()


async def in_steps(
    sandbox: WasmSandbox, batches: Sequence[Sequence[int]], *, park: bool = False, park_at: int | None = None
) -> Ended:
    """BUSY, with the calls of these numbers answered together, in this order.

    `park` lets go of it before each turn; `park_at` in the middle of each, after so many breaths of the loop.
    """
    run = await sandbox.open(program(BUSY))
    turn = await run.begin()
    calls, log = turn.calls, turn.log
    for batch in batches:
        if park:
            run.park()
        turning = asyncio.ensure_future(run.deliver([answer(calls[number - 1]) for number in batch]))
        if park_at is not None:
            for _ in range(park_at):
                await asyncio.sleep(0)
            run.park()
        turn = await turning
        calls, log = calls + turn.calls, log + turn.log
    await run.close()
    assert turn.done
    return Ended(turn.value, log=log, calls=calls)


async def test_g1_the_same_program_does_the_same_again(sandbox: WasmSandbox) -> None:
    first, second = [(await run_program(sandbox, BUSY))._replace(cpu=0) for _ in range(2)]
    assert first == second
    assert first.value["order"] == [1, 1000, 2, 2000, 3, 3000]
    other = await run_program(sandbox, program(BUSY, seed="other"))
    assert other.value["chance"] != first.value["chance"]


async def test_g1_results_in_one_batch_or_one_by_one_lead_to_the_same(sandbox: WasmSandbox) -> None:
    together = await in_steps(sandbox, [[1, 2, 3], [4, 5]])
    assert await in_steps(sandbox, [[1], [2], [3], [4], [5]]) == together
    assert await in_steps(sandbox, [[1, 2], [3, 4], [5]]) == together


@pytest.mark.parametrize("order", list(itertools.permutations([1, 2, 3])))
async def test_g1_another_order_of_results_gives_what_that_order_gives(
    sandbox: WasmSandbox, order: tuple[int, ...]
) -> None:
    ended = await in_steps(sandbox, [order, [4, 5]])
    assert ended.value["order"][::2] == list(order)
    assert [call.arguments["n"] for call in ended.calls[3:]] == [n * 10 for n in order if n != 2]


async def test_g1_a_parked_program_goes_on_with_the_same_numbers(sandbox: WasmSandbox) -> None:
    steps = [[3], [1, 2], [5], [4]]
    assert await in_steps(sandbox, steps, park=True) == await in_steps(sandbox, steps)


@pytest.mark.parametrize("breaths", range(8))
async def test_g1_a_program_that_is_let_go_of_in_the_middle_of_a_turn_goes_on(
    sandbox: WasmSandbox, breaths: int
) -> None:
    """One of its calls asks a person while the result of another is on its way in."""
    steps = [[3], [1, 2], [5], [4]]
    assert await in_steps(sandbox, steps, park_at=breaths) == await in_steps(sandbox, steps)


async def test_g1_results_do_not_pile_up_in_a_program_nor_when_it_is_made_again(sandbox: WasmSandbox) -> None:
    """A hundred megabytes go through sixteen: each result is let go of, and they come back in portions."""
    limits = ProgramLimits(memory=16 * 1024 * 1024, cpu=20)
    run = await sandbox.open(program("let n = 0; while (n < 1e8) n += (await tools.echo()).length; return n", limits))
    turn = await run.begin()
    while not turn.done:
        (call,) = turn.calls
        if call.number == 90:
            run.park()
        turn = await run.deliver([Delivery(call.number, NOW, "x" * 1_000_000)])
    assert turn.value == 100_000_000
    await run.close()


DATES: dict[str, Any] = {
    "Date.now()": NOW * 1000,
    "new Date().getTime()": NOW * 1000,
    "+new Date": NOW * 1000,
    "new Date().toISOString()": "2023-11-14T22:13:20.000Z",
    "Date()": "Tue Nov 14 2023 22:13:20 GMT+0000",
    "typeof Date()": "string",
    "new Date().getTimezoneOffset()": 0,
    "new Date(2024, 1, 29).toISOString()": "2024-02-29T00:00:00.000Z",
    "new Date(2024, 6).getTimezoneOffset()": 0,
    "new Date(5).getTime()": 5,
    "new Date('2024-01-01').getTime()": 1704067200000,
    "new Date('2024-01-01T00:00:00+02:00').toISOString()": "2023-12-31T22:00:00.000Z",
    "new Date(new Date(7)).getTime()": 7,
    "Date.UTC(2000, 0)": 946684800000,
    "Date.parse('1970-01-01T00:00:01Z')": 1000,
    "new Date() instanceof Date": True,
    "new Date().constructor === Date": True,
    "Object.prototype.toString.call(new Date())": "[object Date]",
    "new (class D extends Date { year() { return this.getFullYear() } })().year()": 2023,
    "new (class D extends Date {})(9) instanceof Date": True,
    "Reflect.construct(Date, [], Object) instanceof Date": False,
    "[Date.name, Date.length, Date.now.name]": ["Date", 7, "now"],
}


@pytest.mark.parametrize("expression", DATES)
async def test_g1_a_date_says_the_time_that_it_is_given_in_utc(sandbox: WasmSandbox, expression: str) -> None:
    assert (await run_program(sandbox, f"return {expression}")).value == DATES[expression]


async def test_g1_random_numbers_are_even_and_full(sandbox: WasmSandbox) -> None:
    numbers = (await run_program(sandbox, "return Array.from({ length: 20000 }, Math.random)")).value
    assert all(0 <= number < 1 for number in numbers)
    assert len(set(numbers)) == 20000
    counts = [sum(1 for number in numbers if int(number * 20) == bin_) for bin_ in range(20)]
    assert min(counts) > 850
    assert max(counts) < 1150
    assert {int(number * 2**53) % 2 for number in numbers} == {0, 1}


GLOBALS = """
AggregateError Array ArrayBuffer AsyncDisposableStack BigInt BigInt64Array BigUint64Array Boolean DOMException
DataView Date DisposableStack Error EvalError Float16Array Float32Array Float64Array Function Infinity
Int16Array Int32Array Int8Array InternalError Iterator JSON Map Math NaN Number Object Promise Proxy RangeError
ReferenceError Reflect RegExp Set String SuppressedError Symbol SyntaxError TypeError URIError Uint16Array
Uint32Array Uint8Array Uint8ClampedArray WeakMap WeakSet atob btoa console decodeURI decodeURIComponent
encodeURI encodeURIComponent escape eval globalThis inputs isFinite isNaN parseFloat parseInt queueMicrotask
tools undefined unescape
"""


async def test_g2_these_globals_and_no_others_are_there(sandbox: WasmSandbox) -> None:
    seen = (await run_program(sandbox, "return Object.getOwnPropertyNames(globalThis).sort()")).value
    assert seen == GLOBALS.split()
    symbols = await run_program(sandbox, "return Object.getOwnPropertySymbols(globalThis).map(String)")
    assert symbols.value == ["Symbol(Symbol.toStringTag)"]


async def test_g2_tools_are_what_was_granted_under_their_names(sandbox: WasmSandbox) -> None:
    names = ("mail", "mail.send", "files.text.read", "files.text", "a.b", "__proto__.x", "then")
    source = """
        const all = (place) => Object.keys(place).sort();
        const used = [tools.mail, tools.mail.send, tools.files.text, tools.files.text.read, tools.a.b, tools.then];
        return [all(tools), all(tools.mail), all(tools.files), all(tools.files.text), used.map((one) => typeof one),
            tools.__proto__.x !== undefined, Object.prototype.x ?? null]
    """
    ended = await run_program(sandbox, program(source, tools=names))
    assert ended.value == [
        ["__proto__", "a", "files", "mail", "then"],
        ["send"],
        ["text"],
        ["read"],
        ["function"] * 6,
        True,
        None,
    ]
    calls = await run_program(sandbox, program("tools.mail({ x: 1 }); tools.files.text(); return 1", tools=names))
    assert calls.calls == (GuestCall(1, "mail", {"x": 1}), GuestCall(2, "files.text", {}))


@pytest.mark.parametrize("given", ["1", "'x'", "null", "[1]", "{}, {}", "true", "() => 1", "1n", "Symbol()"])
async def test_g2_arguments_that_are_not_one_object_are_refused(sandbox: WasmSandbox, given: str) -> None:
    ended = await run_program(sandbox, f"return tools.echo({given}).catch((e) => [e.name, e.message])")
    assert ended.value == ["TypeError", "tools.echo takes one object with its arguments"]
    assert ended.calls == ()


LOGGED = {
    "new Uint8Array([1])": "Uint8Array {0: 1}",
    "new Map([['a', new Set([1])]])": "Map {a: Set {1}}",
    "[/a/g, -0, Object('a')]": "[/a/g, -0, [String: a]]",
    "new Date(NaN)": "Invalid Date",
    "new Proxy(new Map(), {})": "Map {}",
    "'a', 1, true, null, undefined": "a 1 true null undefined",
    "": "",
    "{ a: 'x', b: [1, 'y'] }": '{a: "x", b: [1, "y"]}',
    "[]": "[]",
    "Array(101).fill(0)": "[" + "0, " * 100 + "…]",
    "1n, Symbol('x'), () => 1": "1n [symbol] [function]",
    "new Error('no')": "Error: no",
    "[new TypeError('t')]": "[TypeError: t]",
    "new Date(0)": '"1970-01-01T00:00:00.000Z"',
    "[[[[[[[[1]]]]]]]]": "[[[[[[[…]]]]]]]",
    "-0, NaN, 1e21": "-0 NaN 1e+21",
    "1, { get a() { throw 1 } }, 2": "1 [something that cannot be looked at] 2",
    "new Proxy({}, { get() { throw 1 } })": "[something that cannot be looked at]",
}


@pytest.mark.parametrize("given", LOGGED)
async def test_g1_what_is_logged_can_be_read(sandbox: WasmSandbox, given: str) -> None:
    assert (await run_program(sandbox, f"console.log({given})")).log == LOGGED[given] + "\n"


async def test_g1_all_of_the_console_goes_to_the_log(sandbox: WasmSandbox) -> None:
    source = (
        "for (const how of ['log', 'info', 'warn', 'error', 'debug']) console[how](how); return Object.keys(console)"
    )
    ended = await run_program(sandbox, source)
    assert ended.log.split() == ended.value == ["log", "info", "warn", "error", "debug"]


COMBINED = {
    "Promise.all([tools.echo({ n: 1 }), tools.echo({ n: 2 })])": [{"n": 1}, {"n": 2}],
    "Promise.race([tools.fails().catch(() => 'no'), tools.echo({ n: 2 })])": "no",
    "Promise.any([tools.fails(), tools.echo({ n: 2 })])": {"n": 2},
    "(await Promise.allSettled([tools.fails(), tools.echo()])).map((one) => one.status)": ["rejected", "fulfilled"],
    "Array.fromAsync([1, 2], (n) => tools.echo({ n }))": [{"n": 1}, {"n": 2}],
    "tools.echo({ n: 1 }).then((r) => tools.echo({ n: r.n + 1 }))": {"n": 2},
    "tools.fails().finally(() => 1).catch((e) => e.tool)": "fails",
}


@pytest.mark.parametrize("expression", COMBINED)
async def test_g1_calls_can_be_combined_as_promises_are(sandbox: WasmSandbox, expression: str) -> None:
    assert (await run_program(sandbox, f"return {expression}")).value == COMBINED[expression]


async def test_g1_calls_that_nobody_awaits_are_waited_for(sandbox: WasmSandbox) -> None:
    source = "tools.echo().then(() => { console.log('later'); tools.echo().then(() => console.log('last')) }); return 5"
    ended = await run_program(sandbox, source)
    assert (ended.value, ended.log, len(ended.calls)) == (5, "later\nlast\n", 2)


async def test_g1_a_failed_call_is_an_error_that_says_only_what_it_was_told(sandbox: WasmSandbox) -> None:
    source = """
        try { await tools.fails() } catch (e) {
            return [e instanceof Error, e.name, e.message, e.category, e.tool, Object.keys(e), String(e)]
        }
    """
    ended = await run_program(sandbox, source)
    said = "it did not work"
    assert ended.value == [True, "ToolError", said, "permission", "fails", ["tool", "category"], f"ToolError: {said}"]


async def test_g1_an_error_that_is_not_caught_names_its_call(sandbox: WasmSandbox) -> None:
    ended = await run_program(sandbox, "await tools.echo();\nawait tools.fails()")
    assert (ended.trouble, ended.failed_call) == ("thrown", 2)
    assert ended.message.startswith("ToolError: it did not work")
    unseen = await run_program(sandbox, "await tools.echo(); tools.fails(); return 1")
    assert (unseen.trouble, unseen.failed_call) == ("unhandled", 2)


LINES = {
    "null.x": 1,
    "\n\nnull.x": 3,
    "const a = 1;\nfunction f() {\n  throw new Error('x');\n}\n\nf()": 3,
    "const s = `\n\n`;\nnull.x": 4,
    "await tools.echo();\nnull.x": 2,
    "let a = ;": 1,
    "\n  let a = ;\n": 2,
    "if (1) {\n\n": 1,
}


@pytest.mark.parametrize("source", LINES)
async def test_g1_errors_name_the_line_that_the_author_sees(sandbox: WasmSandbox, source: str) -> None:
    ended = await run_program(sandbox, program(source, name="mine.js"))
    assert f"mine.js:{LINES[source]}:" in ended.message.splitlines()[1]
    assert "prelude" not in ended.message


async def test_g1_a_text_is_checked_without_being_run(sandbox: WasmSandbox) -> None:
    for good in ("", "return 1", "for (;;);", "await tools.x.y()", "return arguments // x", "'use strict'; let a"):
        assert await sandbox.check(good) is None
    for bad in ("let a = ;", "}); for (;;); (async () => {", "import 'x'", "return '\ud800'", "(" * 50000, "yield 1"):
        assert await sandbox.check(bad)
    assert "program.js:2:" in str(await sandbox.check("1;\nlet a = ;"))


async def test_g1_what_cannot_be_handed_in_is_a_typed_error(sandbox: WasmSandbox) -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    for data in ({"x": deep}, {"x": object()}, {"x": "\ud800"}):
        ended = await run_program(sandbox, program("return 1", data=data))
        assert (ended.trouble, ended.value) == ("marshal", None)
    assert (await run_program(sandbox, program("return '\ud800'"))).trouble == "syntax"
    run = await sandbox.open(program("return await tools.echo()"))
    turn = await run.begin()
    with pytest.raises(ProgramError) as raised:
        await run.deliver([Delivery(1, NOW, deep)])
    assert raised.value.trouble == "marshal"
    assert (await finish(run, turn)).value == {}
    await run.close()


async def test_g1_data_are_names_that_a_program_sees_and_may_change_for_itself(sandbox: WasmSandbox) -> None:
    data = {"inputs": {"a": [1]}, "steps": {"x": {"output": "y"}}, "__proto__": 5}
    source = "inputs.a.push(2); return [inputs, steps.x.output, globalThis['__proto__']]"
    assert (await run_program(sandbox, program(source, data=data))).value == [{"a": [1, 2]}, "y", 5]
    assert data["inputs"] == {"a": [1]}


async def test_g1_the_time_that_it_computed_is_told_with_each_turn(sandbox: WasmSandbox) -> None:
    work = "for (let i = 0; i < 3e5; i++);"
    run = await sandbox.open(program(f"{work} await tools.echo(); {work} return 1"))
    first = await run.begin()
    last = await run.deliver([answer(first.calls[0])])
    assert 0 < first.cpu < last.cpu
    await run.close()


async def test_g1_what_a_program_logged_before_it_failed_is_not_lost(sandbox: WasmSandbox) -> None:
    run = await sandbox.open(program("console.log('before'); null.x"))
    with pytest.raises(ProgramError) as caught:
        await run.begin()
    assert caught.value.log == "before\n"


REFUSED = {
    "new Uint8Array(2)": "is a Uint8Array, which cannot be passed on: use Array.from(value)",
    "new Map()": "is a Map, which cannot be passed on: use Object.fromEntries(map)",
    "new Date(NaN)": "is an invalid Date",
    "new Error('x')": "is an Error, which cannot be passed on: use String(error)",
    "Object(1)": "is a Number, which cannot be passed on: use value.valueOf()",
    "NaN": "is NaN",
    "() => 1": "is a function",
    "2n ** 64n": "is a BigInt of more than 64 bits",
    "Promise.resolve(1)": "is a promise: is an await missing?",
    "(() => { const a = {}; a.a = a; return a })()": "refers to itself",
    "'\\ud800'": "holds half a character",
}


@pytest.mark.parametrize("value", REFUSED)
async def test_g2_a_value_that_is_not_plain_data_is_refused_with_its_place(sandbox: WasmSandbox, value: str) -> None:
    returned = await run_program(sandbox, f"return {{a: [1, {{b: {value}}}]}}")
    assert returned.trouble == "marshal"
    assert f"the result at a[1].b {REFUSED[value]}" in returned.message
    passed = await run_program(sandbox, f"await tools.echo({{a: [1, {{b: {value}}}]}})")
    assert (passed.trouble, passed.calls) == ("thrown", ())
    assert f"the arguments of echo at a[1].b {REFUSED[value]}" in passed.message


EXACT: dict[str, Any] = {
    "-0": -0.0,
    "2 ** 55": 2.0**55,
    "-(2 ** 60)": -(2.0**60),
    "2n ** 55n + 1n": 2**55 + 1,
    "2n ** 64n - 1n": 2**64 - 1,
    "new Date(0)": "1970-01-01T00:00:00.000Z",
    "[undefined, , {a: undefined}]": [None, None, {}],
    "Object.create(null)": {},
    "'a,b'.match(/(.),(.)/)": ["a,b", "a", "b"],
    "new Proxy({a: [1]}, {})": {"a": [1]},
}


@pytest.mark.parametrize("value", EXACT)
async def test_g2_what_crosses_the_bridge_crosses_it_exactly(sandbox: WasmSandbox, value: str) -> None:
    source = f"const v = await tools.echo({{v: {value}}}); return [{value}, v.v, typeof v.v]"
    ended = await run_program(sandbox, source)
    assert [repr(one) for one in ended.value[:2]] == [repr(EXACT[value])] * 2
    assert repr(ended.calls[0].arguments) == repr({"v": EXACT[value]})


async def test_g2_an_integer_beyond_a_javascript_number_is_a_bigint(sandbox: WasmSandbox) -> None:
    data = {"inputs": {"id": [2**53 + 1, 2**53 - 1, "9007199254740993"]}}
    source = "return [inputs.id.map(v => typeof v), inputs.id[0] + 1n, inputs, `${inputs.id[0]}`]"
    ended = await run_program(sandbox, program(source, data=data))
    assert ended.value == [["bigint", "number", "string"], 2**53 + 2, data["inputs"], "9007199254740993"]


FILLED = "globalThis.k = []; try { for (;;) k.push(new Uint8Array(SIZE)) } catch {}"
OUT_OF_MEMORY = {
    "while its text is copied": "return '\\u20ac'.repeat(3179 * 512)",
    "while its text is put together": "return Array(50).fill('x'.repeat(100000))",
    "in a getter": "return {get x() { const a = []; for (;;) a.push('x'.repeat(9999)) }}",
    "before anything can follow": f"{FILLED.replace('SIZE', '9799')} return 'x'.repeat(10000)",
    "before an error can be told": f"{FILLED.replace('SIZE', '10792')} return 'x'.repeat(10000)",
}


@pytest.mark.parametrize("source", OUT_OF_MEMORY.values(), ids=OUT_OF_MEMORY)
async def test_g1_no_memory_while_the_result_is_read_is_told_as_that(sandbox: WasmSandbox, source: str) -> None:
    limits = ProgramLimits(memory=16 * 1024 * 1024, output=100 * 1024 * 1024, cpu=20)
    assert (await run_program(sandbox, program(source, limits))).trouble in ("memory", "")
