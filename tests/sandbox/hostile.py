r"""Programs that mean harm, as tables: what each is, its text, and how it must end.

Those of one table end alike. A limit that is not the point of a program is so wide that it is not what ends it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from windlass.ports import ProgramLimits

MB = 1024 * 1024


class Hostile(NamedTuple):
    name: str
    source: str
    ends: tuple[str, ...] = ()
    """The troubles that are right; none if it gives `value`."""
    value: Any = None
    limits: ProgramLimits = ProgramLimits(cpu=20.0)


def every(place: str) -> str:
    """Each function there replaced by one that throws."""
    return f"""
        const {{ ownKeys, getOwnPropertyDescriptor: described, defineProperty: define }} = Reflect;
        for (const key of ownKeys({place})) {{
            const how = described({place}, key);
            if (typeof how.value === 'function' && how.configurable && key !== 'constructor')
                define({place}, key, {{ value: () => {{ throw new Error('seen') }} }});
        }}"""


TIME = ProgramLimits(cpu=0.15)
COMPUTING = {
    "an empty loop": "for (;;);",
    "a loop of awaits": "for (;;) await null",
    "a loop of async functions": "const f = async () => 1; for (;;) await f()",
    "an endless generator": "function* g() { for (;;) yield } for (const _ of g());",
    "an endless async generator": "async function* g() { for (;;) yield } for await (const _ of g());",
    "an endless iterator, counted": "Iterator.from({next: () => ({done: false})}).reduce(() => 0, 0)",
    "a comparator": "[2, 1].sort(() => { for (;;); })",
    "a getter": "({ get x() { for (;;); } }).x",
    "a setter": "({ set x(_) { for (;;); } }).x = 1",
    "a trap of a proxy": "'x' in new Proxy({}, { has() { for (;;); } })",
    "a conversion to a number": "+{ valueOf() { for (;;); } }",
    "a conversion to a key": "({})[{ [Symbol.toPrimitive]() { for (;;); } }]",
    "a class that waits in its static block": "class C { static { for (;;); } }",
    "a default argument": "((x = (() => { for (;;); })()) => x)()",
    "a return that is taken back": "for (;;) { try { return 1 } finally { continue } }",
    "throws that are caught": "for (;;) { try { throw 1 } catch {} }",
    "a loop in eval": "eval('for (;;);')",
    "a loop in a function that is made": "new Function('for (;;);')()",
    "a pattern that goes back exponentially": "/(a+)+$/.test('a'.repeat(60) + 'b')",
    "a pattern with alternatives that overlap": "/^(a|a|a)*$/.test('a'.repeat(60) + 'b')",
    "a pattern that refers back": "/(.*)*\\1x/.test('ab'.repeat(40))",
    "a pattern that looks behind": "/(?<=^(a+)+)b/.test('c' + 'a'.repeat(60) + 'b')",
    "a pattern over megabytes": "'a'.repeat(2e6).replace(/a*b/g, '')",
    "a replacement with a function": "'a'.repeat(9).replace(/a/g, () => { for (;;); })",
    "a flood of promises": "const f = () => Promise.resolve().then(f); await f()",
    "a flood of microtasks": "(function f() { queueMicrotask(f) })(); await tools.echo({})",
    "a chain of promises": "let p = Promise.resolve(); for (;;) p = p.then(() => 1)",
    "a thenable that never settles": "await { then(ok) { ok(this) } }",
    "a thenable that loops": "await { then() { for (;;); } }",
    "one power of a BigInt": "7n ** (7n ** 8n)",
    "the text of a large BigInt": "String(3n ** 600000n).length",
    "one join of nothing": "Array(1e9).join('')",
    "one search in something endless": "Array.prototype.indexOf.call({ length: 2 ** 53 - 1 }, 1)",
    "one reversal of something endless": "Array.prototype.reverse.call({ length: 2 ** 53 - 1 })",
    "one sort of many": "Array.from({ length: 3e5 }, Math.random).sort()",
    "one normalisation": "'\\ufdfa'.repeat(1e6).normalize('NFKD')",
    "one escaping": "for (;;) encodeURIComponent('\\u20ac'.repeat(1e6))",
    "one JSON text of much": "const a = Array(3e5).fill({ x: 1 }); for (;;) JSON.stringify(a)",
    "one reading of much JSON": "const s = `[${Array(2e5).fill('{}')}]`; for (;;) JSON.parse(s)",
    "a small share at each call": "for (;;) { await tools.echo({}); for (let i = 0; i < 20000; i++); }",
    "a getter of the result": "return { get x() { for (;;); } }",
    "the keys of the result": "return new Proxy({}, { ownKeys() { for (;;); } })",
    "the length of the result": "return new Proxy([], { get: () => ({ valueOf() { for (;;); } }) })",
    "a getter of the arguments": "await tools.echo({ get x() { for (;;); } })",
    "a getter of what is logged": "console.log({ get x() { for (;;); } })",
    "a getter of what is thrown": "throw { get stack() { for (;;); } }",
    "the prototype of what is thrown": "throw new Proxy({}, { getPrototypeOf() { for (;;); } , get: () => 1 })",
    "a message that never comes": "const e = new Error(); e.message = { toString() { for (;;); } }; throw e",
    "a value that is small and has many branches": "let a = {}; for (let i = 0; i < 60; i++) a = { a, b: a }; return a",
    "a log that has many branches": "let a = []; for (let i = 0; i < 9; i++) a = Array(99).fill(a); console.log(a)",
    "one that goes on after its end": "(async () => { for (;;) await 1 })(); return 1",
}

SPACE = ProgramLimits(memory=16 * MB, cpu=20.0)
FILLING = {
    "an array that grows": "const a = []; for (;;) a.push(1, 2, 3, 4)",
    "arrays of arrays": "const a = []; for (;;) a.push(new Array(1000).fill(1))",
    "objects": "const a = []; for (;;) a.push({ x: 1 })",
    "strings": "const a = []; for (;;) a.push('x'.repeat(1e5) + a.length)",
    "one long string": "let s = 'xy'; for (;;) s = (s + s).toUpperCase()",
    "a map": "const m = new Map(); for (let i = 0; ; i++) m.set(i, i)",
    "a set": "const m = new Set(); for (let i = 0; ; i++) m.add('k' + i)",
    "symbols": "const a = []; for (;;) a.push(Symbol())",
    "keys of one object": "const o = {}; for (let i = 0; ; i++) o['k' + i] = i",
    "buffers": "const a = []; for (;;) a.push(new ArrayBuffer(65536))",
    "one buffer": "new ArrayBuffer(2 ** 30)",
    "a buffer that is resized": "new ArrayBuffer(1, { maxByteLength: 2 ** 30 }).resize(2 ** 30)",
    "a typed array": "new Float64Array(2 ** 26)",
    "closures": "const a = []; for (let i = 0; ; i++) { const x = [i]; a.push(() => x) }",
    "big integers": "const a = []; for (;;) a.push(1n << 100000n)",
    "promises that wait": "const a = []; for (;;) a.push(new Promise(() => {}))",
    "microtasks": "for (;;) queueMicrotask(() => {})",
    "errors": "const a = []; for (;;) a.push(new Error('x'))",
    "patterns": "const a = []; for (let i = 0; ; i++) a.push(new RegExp('a{1,9}' + i))",
    "functions that are made": "const a = []; for (let i = 0; ; i++) a.push(new Function('return ' + i))",
    "a full array": "new Array(2 ** 32 - 1).fill(1)",
    "one repetition": "'x'.repeat(2 ** 29)",
    "one padding": "'x'.padStart(2 ** 29)",
    "one join": "Array(2000).fill('x'.repeat(1e5)).join()",
    "one split": "'x'.repeat(4e6).split('')",
    "one spread": "[...'x'.repeat(4e6)]",
    "something endless, spread": "[...(function* () { for (;;) yield 1 })()]",
    "a text that is thrown": "const e = new Error(); e.message = { toString: () => 'x'.repeat(2 ** 29) }; e.toString()",
    "rejections": "for (;;) Promise.reject(1)",
    "calls that are refused": "for (;;) tools.echo(1).catch(() => {})",
}

NESTING = {
    "a function": "function f() { f() } f()",
    "two functions": "const f = () => g(), g = () => f(); f()",
    "a getter": "const o = { get x() { return this.x } }; o.x",
    "a proxy": "const p = new Proxy({}, { get: (t, k, r) => r[k] }); p.x",
    "proxies of proxies": "let p = {}; for (let i = 0; i < 1e5; i++) p = new Proxy(p, {}); p.x",
    "a conversion": "String({ toString() { return String(this) } })",
    "an array that holds itself, as text": "const f = { toString() { return [this].join() } }; `${f}`",
    "a comparator": "const f = () => [2, 1].sort(f); f()",
    "a replacement": "const f = () => 'a'.replace(/a/, f); f()",
    "a constructor": "class A { constructor() { new A() } } new A()",
    "a generator": "function* g() { yield* g() } g().next()",
    "bound functions": "let f = () => 1; for (let i = 0; i < 3000; i++) f = f.bind(); f()",
    "JSON that is read": "JSON.parse('['.repeat(1e5))",
    "objects in JSON that is read": "JSON.parse('{\"a\":'.repeat(1e5))",
    "a reviver": "const f = () => JSON.parse('[1]', f); f()",
    "brackets in eval": "eval('['.repeat(1e5))",
    "brackets in a function that is made": "new Function('('.repeat(1e5))",
    "its own text": "(" * 20000,
    "functions in its own text": "x=>" * 20000,
    "templates in its own text": "`${" * 20000,
}

THROWING = {
    "null": ("throw null", "it threw null"),
    "undefined": ("throw undefined", "it threw undefined"),
    "a symbol": ("throw Symbol('x')", "it threw [symbol]"),
    "a number": ("throw -0", "it threw -0"),
    "a function": ("throw () => 1", "it threw [function]"),
    "a BigInt": ("throw 5n", "it threw 5n"),
    "a proxy that refuses everything": (
        "throw new Proxy({}, new Proxy({}, { get() { throw 1 } }))",
        "it threw something that cannot be looked at",
    ),
    "a revoked proxy": (
        "const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); throw proxy",
        "it threw something that cannot be looked at",
    ),
    "getters that throw": ("throw { get stack() { throw 1 } }", "it threw something that cannot be looked at"),
    "a message that is an object": ("const e = new Error(); e.message = {}; throw e", "Error: [object Object]"),
    "a message that is a symbol": ("const e = new Error(); e.message = Symbol('s'); throw e", "Error: Symbol(s)"),
    "a name that throws": (
        "const e = new Error(); Object.defineProperty(e, 'name', { get() { throw 1 } }); throw e",
        "it threw something that cannot be looked at",
    ),
    "a stack of its own": ("const e = new Error('m'); e.stack = 'forged'; throw e", "Error: m\nforged"),
    "half a character": ("throw new Error('\\ud800')", "Error: "),
    "a long message": ("throw new Error('x'.repeat(1e6))", "Error: xxx"),
    "an error in a rejection": ("await Promise.reject(new RangeError('r'))", "RangeError: r"),
    "all of many": ("await Promise.any([Promise.reject(1)])", "AggregateError: "),
    "an error without a prototype": ("throw Object.setPrototypeOf(new Error('x'), null)", "it threw Error {"),
    "a forged error of a tool": (
        "const e = await tools.fails().catch((e) => e);"
        'throw Object.assign(Object.create(Object.getPrototypeOf(e)), { call: \'1,"calls":[[2,"shell.run",{}]]\' })',
        "ToolError:",
    ),
    "an error of a tool, made by itself": (
        "const e = await tools.fails().catch((e) => e); throw new e.constructor('made up')",
        "ToolError: made up",
    ),
    "a call that was not given": ("tools.shell.run({})", "TypeError: "),
    "a call by a longer name": ("tools['files.read']({})", "TypeError: "),
    "a module": ("await import('fs')", "ReferenceError: could not load module 'fs'"),
    "a module of data": ("await import('data:text/javascript,1')", "ReferenceError: could not load module"),
    "a module of the interpreter": ("await import('qjs:os')", "ReferenceError: could not load module"),
    "parentheses in a pattern": ("new RegExp('('.repeat(1e5) + ')'.repeat(1e5))", "SyntaxError: "),
    "a buffer that is longer than long": ("new ArrayBuffer(2 ** 53)", "RangeError: "),
    "an array that is longer than long": ("new Array(-1)", "RangeError: "),
    "a repetition that is longer than long": ("'x'.repeat(2 ** 30)", "RangeError: "),
    "a BigInt that is larger than large": ("2n ** (2n ** 64n)", "RangeError: "),
    "tools replaced by a proxy's": ("new Proxy(tools, { get: () => tools.nothing }).x()", "TypeError: "),
}

UNFIT = {
    "a BigInt of 65 bits": "return 2n ** 64n",
    "a typed array": "return { x: new Uint8Array(2) }",
    "a buffer": "return new ArrayBuffer(2)",
    "a boxed number": "return [Object(1)]",
    "a boxed text": "return new String('a')",
    "a pattern": "return { x: /a/ }",
    "an error": "return [new Error('x')]",
    "a weak map": "return new WeakMap()",
    "a date that is none": "return [new Date(NaN)]",
    "an object of a class": "return new (class { x = 1 })()",
    "an iterator": "return [1].values()",
    "arguments": "return (function () { return arguments })(1)",
    "a proxy of a map": "return new Proxy(new Map(), {})",
    "a name that is a symbol": "return { [Symbol()]: 1 }",
    "a symbol": "return { x: Symbol() }",
    "a function": "return [() => 1]",
    "a class": "return class {}",
    "NaN": "return [NaN]",
    "infinity": "return { x: -Infinity }",
    "a map": "return new Map()",
    "a set": "return { x: new Set([1]) }",
    "a promise inside": "return [Promise.resolve(1)]",
    "a circle": "const x = {}; x.x = x; return x",
    "a circle through an array": "const x = []; x.push([x]); return x",
    "65 levels": "let x = []; for (let i = 0; i < 64; i++) x = [x]; return x",
    "100,000 levels": "let x = {}; for (let i = 0; i < 1e5; i++) x = { x }; return x",
    "half a character": "return 'a\\ud800'",
    "the other half": "return ['\\udc00']",
    "half a character in a key": "return { '\\ud83d': 1 }",
    "toJSON as a function of its own": "return { toJSON() { return 1 } }",
    "a getter that throws": "return { get x() { throw new Error('no') } }",
    "a proxy that refuses everything": "return [new Proxy({}, new Proxy({}, { get() { throw 1 } }))]",
    "its tools": "return tools",
    "its console": "return console",
}

FLOODING = {
    "calls": ("for (;;) await tools.echo({})", "calls"),
    "calls at once": ("for (let i = 0; i < 5000; i++) tools.echo({})", "calls"),
    "calls that nobody looks at": ("for (let i = 0; i < 5000; i++) tools.echo({}).catch(() => {}); return 1", "calls"),
    "calls from a getter of the result": (
        "return { get x() { for (let i = 0; i < 5000; i++) tools.echo({}).catch(() => 1); return 1 } }",
        "calls",
    ),
    "lines": ("for (;;) console.log('x'.repeat(1000))", "log"),
    "lines, caught": ("for (let i = 0; i < 1e4; i++) try { console.log('x'.repeat(99)) } catch {} return 1", "log"),
    "one long line": ("console.log('x'.repeat(1e6))", "log"),
    "a line of long characters": ("console.log('\\u20ac'.repeat(99000)); return 1", "log"),
    "a large result": ("return 'x'.repeat(2e6)", "output"),
    "a result of long characters": ("return '\\u20ac'.repeat(9e5)", "output"),
    "a result of holes": ("return new Array(2 ** 32 - 1)", "output"),
    "a result without an end": ("return new Proxy([], { get: (t, k) => (k === 'length' ? 1e9 : 1) })", "output"),
    "sixteen megabytes": ("return Array(16).fill('x'.repeat(1 << 20))", "output"),
    "large arguments": ("await tools.echo({ x: 'x'.repeat(2e6) })", "output"),
    "large arguments, caught": ("try { await tools.echo({ x: 'x'.repeat(2e6) }) } catch { return 1 }", "output"),
    "arguments of long characters": ("await tools.echo({ x: '\\u20ac'.repeat(9e5) })", "output"),
    "many large arguments": ("for (let i = 0; i < 30; i++) tools.echo({ x: 'x'.repeat(1e6) })", "memory"),
    "rejections": ("for (let i = 0; i < 1000; i++) Promise.reject(i); return 1", "unhandled"),
    "a call that fails unseen": ("tools.fails({}); return 1", "unhandled"),
    "waiting for nothing": ("await new Promise(() => {})", "stalled"),
    "a then that never answers": ("Object.prototype.then = () => {}; return {}", "stalled"),
}

OUT_OF_FORM = {
    "a text that closes its function": "}); globalThis.x = 1; (async () => {",
    "a text that closes it and goes on": "}, evil(), async () => {",
    "a text that closes a method": "}, [evil()]() {",
    "a text that leaves a comment open": "return 1 /*",
    "import.meta": "return import.meta",
    "an import": "import fs from 'fs'",
    "a caller's super": "return super.constructor",
}

HONEST = """
const r = await tools.echo({ a: [1, 'x', { b: null }] });
console.log('said', r);
let failed;
try { await tools.fails() } catch (e) { failed = e.category }
return { r, failed, now: Date.now() > 1.7e12, again: await tools.echo() }
"""
"""What must come out the same, whatever was done to the built-ins before."""
HONEST_VALUE = {"r": {"a": [1, "x", {"b": None}]}, "failed": "permission", "now": True, "again": {}}

POISON = {
    "accessors on Object.prototype": """
        const names = ['value', 'enumerable', 'writable', 'name', 'calls', 'limits', 'log', 'output', 'resolve',
            'reject', 'length', 'stack', 'message', 'tool', 'category', 'now', 'seed', 'data', 'tools', '0', '1', '2'];
        const how = Object.create(null);
        how.get = () => 'evil'; how.set = () => { throw new Error('seen') };
        for (const name of names) Object.defineProperty(Object.prototype, name, how);""",
    "get and set on Object.prototype": "Object.prototype.get = Object.prototype.set = () => { throw 1 };",
    "setters on the indices of Array.prototype": """
        for (let i = 0; i < 20; i++) Object.defineProperty(Array.prototype, i,
            { get() { return 'evil' }, set() { throw new Error('seen') } });""",
    "every method of Array.prototype": every("Array.prototype"),
    "every method of String.prototype": every("String.prototype"),
    "every method of Promise.prototype": every("Promise.prototype"),
    "every method of Function.prototype": every("Function.prototype"),
    "every method of Error.prototype": every("Error.prototype"),
    "every method of Date.prototype": every("Date.prototype"),
    "every method of Map.prototype": every("Map.prototype"),
    "every method of Set.prototype": every("Set.prototype"),
    "every method of Number.prototype": every("Number.prototype"),
    "every method of RegExp.prototype": every("RegExp.prototype"),
    "every function of JSON": every("JSON"),
    "every function of Reflect": every("Reflect"),
    "every function of Object": every("Object"),
    "every function of Promise": every("Promise"),
    "every function of Array": every("Array"),
    "every function of String": every("String"),
    "every function of Number": every("Number"),
    "every function of Math but two": "for (const k of ['imul', 'floor', 'max']) Math[k] = () => { throw 1 };",
    "toJSON everywhere": """
        for (const one of [Object, Array, String, Number, Boolean, Function, Date])
            one.prototype.toJSON = () => 'evil';""",
    "no iterators": "delete Array.prototype[Symbol.iterator]; delete String.prototype[Symbol.iterator];",
    "iterators that lie": "Array.prototype[Symbol.iterator] = function* () { yield 'evil' };",
    "species that lie": """
        for (const one of [Array, Promise, Map, Set, RegExp])
            Object.defineProperty(one, Symbol.species, { get() { throw 1 } });""",
    "instances that lie": "Object.defineProperty(Error, Symbol.hasInstance, { value: () => { throw 1 } });",
    "a constructor of promises that lies": """
        const evil = function (f) { f(() => {}, () => {}) };
        evil[Symbol.species] = evil; Object.defineProperty(Promise.prototype, 'constructor', { value: evil });""",
    "no prototype behind arrays": "Object.setPrototypeOf(Array.prototype, null);",
    "no prototype behind functions": "Object.setPrototypeOf(Function.prototype, null);",
    "no prototype behind errors": "Object.setPrototypeOf(Error.prototype, null);",
    "stacks without a limit": "Error.stackTraceLimit = Infinity;",
    "stacks with a limit that lies": "Error.stackTraceLimit = { valueOf() { throw 1 } };",
    "stacks of its own": "Error.prepareStackTrace = () => { throw 1 };",
    "all globals gone": """
        const all = globalThis, kept = ['tools', 'console', 'Date'];
        for (const name of Object.getOwnPropertyNames(all)) if (!kept.includes(name)) delete all[name];""",
    "all globals frozen": """
        for (const name of Object.getOwnPropertyNames(globalThis)) {
            Object.freeze(globalThis[name]); if (globalThis[name]?.prototype) Object.freeze(globalThis[name].prototype)
        }
        Object.freeze(globalThis);""",
    "its own tools changed": """
        const { echo } = tools;
        delete tools.echo; tools.echo = 1; delete tools.echo; tools.echo = echo; tools.shell = 1;
        """,
    "an error of a tool that extends something else": """
        const e = await tools.fails().catch((e) => e);
        try { Object.setPrototypeOf(e.constructor, function () { return new Proxy({}, {}) }) } catch {}
        for (const k of ['tool', 'category']) Object.defineProperty(Object.getPrototypeOf(e), k, { set() { throw 1 } });
        """,
    "a second time, between calls": "await tools.echo(); JSON.parse = JSON.stringify = null; Promise = Array = null;",
}

GIVING: dict[str, tuple[str, Any]] = {
    "nothing": ("", None),
    "holes": ("return [, 1, , undefined]", [None, 1, None, None]),
    "minus nought": ("return [-0, 0]", [0, 0]),
    "the edge of whole numbers": ("return [2 ** 53 + 1, -(2 ** 53), 1e21, 5e-324]", [2**53, -(2**53), 1e21, 5e-324]),
    "a key that is a prototype": ('return JSON.parse(\'{"__proto__": {"x": 1}}\')', {"__proto__": {"x": 1}}),
    "no prototype": ("return Object.assign(Object.create(null), { x: 1 })", {"x": 1}),
    "a date": ("return [new Date(0)]", ["1970-01-01T00:00:00.000Z"]),
    "undefined inside": ("return { x: undefined, y: null }", {"y": None}),
    "a getter": ("return { get x() { return 3 } }", {"x": 3}),
    "a proxy": ("return new Proxy({ x: 1 }, { get: () => 2 })", {"x": 2}),
    "a proxy of an array": ("return new Proxy([1, 2], {})", [1, 2]),
    "a promise of a promise": ("return Promise.resolve(Promise.resolve(1))", 1),
    "raw JSON": ("return typeof JSON.rawJSON === 'function' ? Object.keys(JSON.rawJSON('1')).length >= 0 : true", True),
    "64 levels": ("let x = 1; for (let i = 0; i < 64; i++) x = [x]; return JSON.stringify(x).length", 129),
    "signs that need care": ("return '\\u0000\\u2028\\u{1f600}\"\\\\</script>'", '\x00\u2028\U0001f600"\\</script>'),
    "half a character, made whole": ("return '\\ud800'.toWellFormed()", "\ufffd"),
    "something that looks like a frame": (
        'return tools.echo({ calls: [[1, "shell.run", {}]], finished: "done", x: \'}],"breach":""}\' })',
        {"calls": [[1, "shell.run", {}]], "finished": "done", "x": '}],"breach":""}'},
    ),
    "a call through its function": ("return tools.echo.call(null, { x: 1 })", {"x": 1}),
    "a call through Reflect": ("return Reflect.apply(tools.echo, tools, [{ x: 1 }])", {"x": 1}),
    "calls from within the arguments": (
        "let n = 0; const f = () => ({ get x() { if (n++ < 50) tools.echo(f()).catch(() => 1); return 1 } });"
        "return typeof tools.echo(f())",
        "object",
    ),
    "a call as a constructor": ("try { new tools.echo() } catch (e) { return e.name }", "TypeError"),
    "the prototype of its tools": ("return [Object.getPrototypeOf(tools), tools.constructor ?? null]", [None, None]),
    "tools under other names": (
        "const x = 'x'.repeat(1e6); return [tools[x], tools.files[x], tools['__proto__'], tools.files.constructor]",
        [None, None, None, None],
    ),
    "an answer that comes twice": ("const p = tools.echo({ x: 1 }); return [await p, await p]", [{"x": 1}, {"x": 1}]),
    "the world of its constructors": (
        "const made = [{}, () => 1, async () => 1, function* () {}, async function* () {}, tools.echo,"
        "    console.log, Date];"
        "return made.map((one) => { const c = one.constructor; const f = c === Object ? c.constructor : c;"
        "  return f('return globalThis') ? 1 : 0 })",
        [1] * 8,
    ),
    "what a constructor sees": (
        "return [].constructor.constructor('return typeof process + typeof std')()",
        "undefined" * 2,
    ),
    "a caller": ("function f() { return f.caller ?? null } try { return f() } catch (e) { return null }", None),
    "a caller's arguments": (
        "function f() { try { return arguments.callee.caller ?? null } catch { return null } } return f()",
        None,
    ),
    "with": ("with ({ tools: 1 }) { return tools }", 1),
    "a stack on an object of its own": ("const o = {}; Error.captureStackTrace(o); return typeof o.stack", "string"),
    "memory that ran out and was caught": (
        "const a = []; try { for (;;) a.push(new ArrayBuffer(1 << 20)) } catch (e) { a.length = 0; return e.name }",
        "InternalError",
    ),
    "a stack that ran out and was caught": (
        "let n = 0; const f = () => { n++; f() }; try { f() } catch (e) { return n > 100 && e.name }",
        "RangeError",
    ),
    "a text that closes its function without effect": ("}, async function () { return typeof x", "undefined"),
    "what can be reached that is not of JavaScript itself": (
        """
        const seen = new Set(), names = new Set(), open = [globalThis, (async () => {})(), (function* () {})(),
            (async function* () {})(), await tools.fails().catch((e) => e), await tools.echo(1).catch((e) => e)];
        while (open.length) {
            const one = open.pop();
            if ((typeof one !== 'object' && typeof one !== 'function') || one === null || seen.has(one)) continue;
            seen.add(one); open.push(Object.getPrototypeOf(one));
            if (typeof one === 'function' && !String(one).includes('[native code]')) names.add(one.name);
            for (const key of Reflect.ownKeys(one)) {
                const how = Reflect.getOwnPropertyDescriptor(one, key); open.push(how.value, how.get, how.set);
            }
        }
        return [...names].sort();
        """,
        ["Date", "ToolError", "now", "random", "use", "write"],
    ),
}

ABSENT = (
    "process",
    "require",
    "module",
    "exports",
    "global",
    "window",
    "self",
    "std",
    "os",
    "bjson",
    "Deno",
    "Bun",
    "fetch",
    "XMLHttpRequest",
    "WebSocket",
    "Worker",
    "setTimeout",
    "setInterval",
    "setImmediate",
    "clearTimeout",
    "WebAssembly",
    "ShadowRealm",
    "SharedArrayBuffer",
    "Atomics",
    "WeakRef",
    "FinalizationRegistry",
    "performance",
    "navigator",
    "crypto",
    "gc",
    "print",
    "scriptArgs",
    "loadScript",
    "importScripts",
    "structuredClone",
    "Intl",
    "Temporal",
    "localStorage",
    "indexedDB",
    "Buffer",
    "__dirname",
    "alert",
    "prompt",
    "MessageChannel",
    "BroadcastChannel",
    "TextDecoder",
    "URL",
)

SAMPLES = [
    *(Hostile(f"computing: {name}", source, ("cpu",), limits=TIME) for name, source in COMPUTING.items()),
    *(Hostile(f"filling: {name}", source, ("memory",), limits=SPACE) for name, source in FILLING.items()),
    *(Hostile(f"nesting: {name}", source, ("stack",)) for name, source in NESTING.items()),
    *(Hostile(f"throwing: {name}", source, ("thrown",), said) for name, (source, said) in THROWING.items()),
    *(Hostile(f"unfit: {name}", source, ("marshal",)) for name, source in UNFIT.items()),
    *(Hostile(f"flooding: {name}", source, (end,)) for name, (source, end) in FLOODING.items()),
    *(Hostile(f"out of form: {name}", source, ("syntax",)) for name, source in OUT_OF_FORM.items()),
    *(Hostile(f"poison: {name}", poison + HONEST, (), HONEST_VALUE) for name, poison in POISON.items()),
    *(Hostile(f"giving: {name}", source, (), value) for name, (source, value) in GIVING.items()),
    Hostile("absent", f"return [{','.join(f'typeof {name}' for name in ABSENT)}]", (), ["undefined"] * len(ABSENT)),
]
