// The guest's side of the bridge: makes the world that a program sees, and keeps what it asks for until it is fetched.
//
// Everything here may run after the program has changed every prototype that it can reach. So: built-ins are taken
// once, at the start, and called through `apply`; arrays and tables of our own have no prototype; nothing is iterated,
// spread or destructured; texts are joined with +, since QuickJS makes a call of String.prototype.concat of a template.
// None of this guards the host, which believes nothing that comes out of here: it keeps honest programs from hurting
// themselves, and says in plain words what went wrong.
(() => {
  "use strict";
  const { apply, construct, ownKeys, getOwnPropertyDescriptor: described } = Reflect;
  const { create, freeze, keys, defineProperty: define, getPrototypeOf: prototypeOf, setPrototypeOf } = Object;
  const { getOwnPropertySymbols: symbolsOf } = Object;
  const { parse, stringify } = JSON;
  const { isArray } = Array;
  const { isView } = ArrayBuffer;
  const { isFinite, MAX_SAFE_INTEGER: MOST_EXACT } = Number;
  const { imul, floor } = Math;
  const NativeDate = Date, NativePromise = Promise, NativeError = Error, NativeTypeError = TypeError;
  const text = String, toBigInt = BigInt;
  const objectPrototype = Object.prototype, arrayPrototype = Array.prototype;
  const { join } = arrayPrototype;
  const { toString: objectText } = objectPrototype;
  const { forEach: eachOfMap } = Map.prototype, { forEach: eachOfSet } = Set.prototype;
  const { toString: patternText } = RegExp.prototype;
  const { isWellFormed, toWellFormed, charCodeAt, endsWith, includes, slice } = String.prototype;
  const { getTime, toISOString, toString: dateText } = NativeDate.prototype;

  const DEEPEST = 64;
  const LARGEST = 2n ** 63n;
  const table = () => create(null);
  const list = () => setPrototypeOf([], null);
  const put = (target, name, value) => {
    const how = table();
    how.value = value;
    how.writable = how.configurable = true;
    how.enumerable = false;
    define(target, name, how);
  };

  // What a run is given, and what it has done so far.
  let limits, now = 0, calls = 0, logged = 0, breach = "", outbox = list(), log = list();
  let pending = table();
  let finished = "", outcome = "", failedCall = 0;

  // Which call an error is of stands where a program cannot write; what the classes extend stays what it is.
  let callOf, mark;
  class ToolError extends NativeError {
    #call = 0;
    static {
      callOf = (error) => (#call in error ? error.#call : 0);
      mark = (error, number) => { error.#call = number; };
    }
  }
  put(ToolError.prototype, "name", "ToolError");
  freeze(ToolError);
  class LimitError extends NativeError {}
  put(LimitError.prototype, "name", "LimitError");
  freeze(LimitError);
  // It would show a program the functions that are at work here, and with them a way to send what it likes.
  delete NativeError.prepareStackTrace;

  const fault = (message) => new NativeTypeError(message);
  const broken = (kind, message) => {
    breach = breach || kind;
    return new LimitError(message);
  };

  // -- values on their way out -------------------------------------------------------------------

  // JSON of plain data. A `toJSON`, wherever it is, is not asked: what a value says it is, is what is sent. What JSON
  // cannot hold exactly is refused, with the place where it stands; nothing is changed on its way in silence.
  const encode = (root, what, most) => {
    const pieces = list(), above = list(), places = list();
    let size = 0;
    const add = (piece) => {
      size += piece.length;
      if (size > most) throw broken("output", what + " is larger than " + most + " bytes");
      pieces[pieces.length] = piece;
    };
    const at = (where) => where === "" ? what : what + " at " + where;
    const quoted = (value, where) => {
      if (apply(isWellFormed, value, [])) return stringify(value);
      throw fault(at(where) + " holds half a character (a lone surrogate); use toWellFormed()");
    };
    const member = (where, name) => where === "" ? name : where + "." + name;
    const walk = (value, where, depth) => {
      switch (typeof value) {
        case "string": add(quoted(value, where)); return;
        case "boolean": add(value ? "true" : "false"); return;
        case "number":
          if (!isFinite(value)) throw fault(at(where) + " is " + text(value) + ", which cannot be passed on");
          add(number(value));
          return;
        case "bigint":
          if (value < -LARGEST || value >= 2n * LARGEST) {
            throw fault(at(where) + " is a BigInt of more than 64 bits, which cannot be passed on: use String(value)");
          }
          add(text(value));
          return;
        case "object": break;
        default: throw fault(at(where) + " is a " + (typeof value) + ", which cannot be passed on");
      }
      if (value === null) { add("null"); return; }
      if (depth >= DEEPEST) throw tooDeep(value);
      above[depth] = value;
      places[depth] = where;
      if (isArray(value)) {
        const length = value.length;
        add("[");
        for (let index = 0; index < length; index++) {
          if (index) add(",");
          const item = value[index];
          if (item === undefined) add("null"); else walk(item, where + "[" + index + "]", depth + 1);
        }
        add("]");
        return;
      }
      const kind = kindOf(value);
      if (kind === "Date") { add(date(value, where)); return; }
      if (kind !== "") throw fault(at(where) + " is " + refusal(kind));
      if (symbolsOf(value).length) throw fault(at(where) + " has a symbol for a name, which cannot be passed on");
      const names = keys(value);
      let first = true;
      add("{");
      for (let index = 0; index < names.length; index++) {
        const name = names[index];
        const inner = value[name];
        if (inner === undefined) continue;
        add((first ? "" : ",") + quoted(name, where) + ":");
        first = false;
        walk(inner, member(where, name), depth + 1);
      }
      add("}");
    };
    const tooDeep = (value) => {
      for (let depth = 0; depth < DEEPEST; depth++) {
        if (above[depth] === value) return fault(at(places[depth]) + " refers to itself");
      }
      return fault(what + " is nested more than " + DEEPEST + " levels deep");
    };
    const date = (value, where) => {
      const said = isoText(value);
      if (said === undefined) throw fault(at(where) + " is an invalid Date, which cannot be passed on");
      return '"' + said + '"';
    };
    walk(root, "", 0);
    return apply(join, pieces, [""]);
  };

  // JSON readers take whole numbers for integers: beyond 2**53, where the digits that JavaScript writes are not the
  // number's own, and for -0, a point says that it is none.
  const number = (value) => {
    if (value === 0 && 1 / value < 0) return "-0.0";
    const said = text(value);
    if (value <= MOST_EXACT && value >= -MOST_EXACT) return said;
    return apply(includes, said, ["e"]) ? said : said + ".0";
  };

  // "" for a plain object, "class" for one of a class of the program's own, else what JavaScript calls it.
  const kindOf = (value) => {
    const prototype = prototypeOf(value);
    const plain = prototype === objectPrototype || prototype === null;
    if (!plain && isTime(value)) return "Date";
    const kind = apply(slice, apply(objectText, value, []), [8, -1]);
    if (kind !== "Object") return kind;
    return !plain ? "class" : isView(value) ? "TypedArray" : "";
  };
  const INSTEAD = table();
  INSTEAD.Map = "Object.fromEntries(map)";
  INSTEAD.Set = INSTEAD.Arguments = INSTEAD.Generator = "Array.from(value)";
  INSTEAD.ArrayBuffer = "Array.from(new Uint8Array(buffer))";
  INSTEAD.Error = "String(error)";
  INSTEAD.RegExp = "String(pattern)";
  INSTEAD.Number = INSTEAD.String = INSTEAD.Boolean = INSTEAD.BigInt = "value.valueOf()";
  INSTEAD.class = "{...value}";
  const refusal = (kind) => {
    if (kind === "Promise") return "a promise: is an await missing?";
    const many = apply(endsWith, kind, ["Array"]) || apply(endsWith, kind, ["Iterator"]);
    const other = many ? "Array.from(value)" : INSTEAD[kind];
    const article = apply(includes, "AEIO", [kind[0]]) ? "an " : "a ";
    const name = kind === "class" ? "an object of a class" : article + apply(slice, kind, [0, 40]);
    return name + ", which cannot be passed on" + (other === undefined ? "" : ": use " + other);
  };
  const isTime = (value) => {
    try { apply(getTime, value, []); } catch { return false; }
    return true;
  };
  // undefined for a date that is none.
  const isoText = (value) => {
    const time = apply(getTime, value, []);
    return time === time ? apply(toISOString, value, []) : undefined;
  };

  // -- calls ----------------------------------------------------------------------------------------

  const call = (name, given) => new NativePromise((resolve, reject) => {
    if (calls >= limits.calls) throw broken("calls", "more than " + limits.calls + " calls");
    const args = given.length && given[0] !== undefined ? given[0] : table();
    if (given.length > 1 || typeof args !== "object" || args === null || isArray(args)) {
      throw fault("tools." + name + " takes one object with its arguments");
    }
    const said = encode(args, "the arguments of " + name, limits.output);
    if (calls >= limits.calls) throw broken("calls", "more than " + limits.calls + " calls");
    const number = ++calls;
    const waiting = table();
    waiting.resolve = resolve;
    waiting.reject = reject;
    waiting.name = name;
    pending[number] = waiting;
    outbox[outbox.length] = "[" + number + "," + stringify(name) + "," + said + "]";
  });

  const toolbox = (names) => {
    const root = table();
    for (let index = 0; index < names.length; index++) {
      const name = names[index];
      let place = root, part = "", rest = name;
      while (rest !== "") {
        let end = 0;
        while (end < rest.length && apply(charCodeAt, rest, [end]) !== 46) end++;
        part = apply(slice, rest, [0, end]);
        rest = apply(slice, rest, [end + 1]);
        if (rest === "") break;
        if (described(place, part) === undefined) show(place, part, table());
        place = place[part];
      }
      const inner = described(place, part);
      const use = (...given) => call(name, given);
      if (inner !== undefined) {
        const names = ownKeys(inner.value);
        for (let at = 0; at < names.length; at++) show(use, names[at], inner.value[names[at]]);
      }
      show(place, part, use);
    }
    return root;
  };
  const show = (target, name, value) => {
    const how = table();
    how.value = value;
    how.enumerable = how.configurable = true;
    how.writable = false;
    define(target, name, how);
  };

  // -- what a program sees besides JavaScript itself --------------------------------------------------

  const shown = (value, depth) => {
    switch (typeof value) {
      case "string": return depth ? stringify(value) : value;
      case "object": break;
      case "function": return "[function]";
      case "symbol": return "[symbol]";
      case "bigint": return text(value) + "n";
      case "number": return value === 0 && 1 / value < 0 ? "-0" : text(value);
      default: return text(value);
    }
    if (value === null) return "null";
    if (depth > 6) return "…";
    if (isError(value)) return text(value.name) + ": " + text(value.message);
    if (isTime(value)) {
      const said = isoText(value);
      return said === undefined ? "Invalid Date" : '"' + said + '"';
    }
    const pieces = list();
    if (isArray(value)) {
      for (let index = 0; index < value.length && index < 100; index++) pieces[index] = shown(value[index], depth + 1);
      return "[" + apply(join, pieces, [", "]) + (value.length > 100 ? ", …" : "") + "]";
    }
    const kind = kindOf(value);
    const own = shownOfKind(kind, value, pieces, depth);
    if (own !== undefined) return own;
    for (let index = 0, names = keys(value); index < names.length && index <= 100; index++) {
      note(pieces, names[index], value[names[index]], depth);
    }
    const head = kind === "" || kind === "class" ? "" : kind + " ";
    return head + "{" + apply(join, pieces, [", "]) + "}";
  };
  // A proxy, or a value whose prototype was taken away, is called what it is not able to do: it shows its properties.
  const shownOfKind = (kind, value, pieces, depth) => {
    try {
      switch (kind) {
        case "RegExp": return apply(patternText, value, []);
        case "Number": case "String": case "Boolean": case "BigInt": return "[" + kind + ": " + text(value) + "]";
        case "Map": apply(eachOfMap, value, [(inner, name) => { note(pieces, name, inner, depth); }]); return;
        case "Set": apply(eachOfSet, value, [(inner) => { note(pieces, undefined, inner, depth); }]); return;
      }
    } catch {}
  };
  const note = (pieces, name, value, depth) => {
    const at = pieces.length;
    if (at > 100) return;
    const head = name === undefined ? "" : (typeof name === "string" ? name : shown(name, depth + 1)) + ": ";
    pieces[at] = at === 100 ? "…" : head + shown(value, depth + 1);
  };
  const isError = (value) => {
    for (let prototype = prototypeOf(value); prototype !== null; prototype = prototypeOf(prototype)) {
      if (prototype === NativeError.prototype) return true;
    }
    return false;
  };
  // A property may be a function of the program's own, and throw.
  const looked = (value) => {
    try { return shown(value, 0); } catch { return "[something that cannot be looked at]"; }
  };
  const write = (...given) => {
    const pieces = list();
    for (let index = 0; index < given.length; index++) pieces[index] = looked(given[index]);
    const line = apply(toWellFormed, apply(join, pieces, [" "]) + "\n", []);
    logged += line.length;
    if (logged > limits.log) throw broken("log", "more than " + limits.log + " bytes logged");
    log[log.length] = line;
  };

  function FixedDate(...given) {
    if (new.target === undefined) return apply(dateText, new NativeDate(now), []);
    return construct(NativeDate, given.length === 0 ? [now] : given, new.target);
  }
  FixedDate.prototype = NativeDate.prototype;
  put(FixedDate, "now", { now: () => now }.now);
  put(FixedDate, "parse", NativeDate.parse);
  put(FixedDate, "UTC", NativeDate.UTC);
  put(FixedDate, "name", "Date");
  put(FixedDate, "length", 7);
  put(NativeDate.prototype, "constructor", FixedDate);

  // sfc32: the same numbers for the same seed, whatever else happens.
  let a = 0, b = 0, c = 0, d = 1;
  const random32 = () => {
    const t = (((a + b) | 0) + d) | 0;
    d = (d + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = ((c << 21) | (c >>> 11)) + t | 0;
    return t >>> 0;
  };
  const random = () => (floor(random32() / 32) * 67108864 + floor(random32() / 64)) / 9007199254740992;

  const gone = ["performance", "navigator", "SharedArrayBuffer", "Atomics", "WeakRef", "FinalizationRegistry", "gc"];
  for (let index = 0; index < gone.length; index++) delete globalThis[gone[index]];
  put(globalThis, "Date", FixedDate);
  put(Math, "random", random);
  const quiet = table();
  for (let at = 0, names = ["log", "info", "warn", "error", "debug"]; at < 5; at++) show(quiet, names[at], write);
  put(globalThis, "console", quiet);

  // -- what the host calls ------------------------------------------------------------------------------

  // How a program's error is told: its own words, cut short, and which call it comes from.
  const told = (error) => {
    failedCall = 0;
    try {
      if (typeof error !== "object" || error === null) return apply(slice, "it threw " + shown(error, 1), [0, 2000]);
      failedCall = callOf(error);
      const stack = text(error.stack ?? "");
      const head = isError(error) ? text(error.name) + ": " + text(error.message) : "it threw " + shown(error, 1);
      return apply(slice, head + "\n" + stack, [0, 4000]);
    } catch {
      return "it threw something that cannot be looked at";
    }
  };
  const seal = (kind, said) => {
    finished = kind;
    outcome = said;
  };
  const settle = (value) => {
    try {
      seal("done", encode(value === undefined ? null : value, "the result", limits.output));
    } catch (error) {
      seal(breach || "marshal", told(error));
    }
  };

  // What was handed in, with its integers that a number cannot hold put in as BigInts: [[names, digits], …].
  const exact = (given, name, large) => {
    if (large === undefined) return given[name];
    for (let index = 0; index < large.length; index++) {
      const names = large[index][0];
      let place = given, at = name;
      for (let depth = 0; depth < names.length; depth++) {
        place = place[at];
        at = names[depth];
      }
      place[at] = toBigInt(large[index][1]);
    }
    return given[name];
  };

  const hooks = table();
  hooks.setup = (given) => {
    const told = parse(given);
    limits = told.limits;
    now = told.now;
    a = told.seed[0] | 0; b = told.seed[1] | 0; c = told.seed[2] | 0; d = told.seed[3] | 0;
    for (let index = 0; index < 12; index++) random32();
    const data = exact(told, "data", told.large);
    const names = keys(data);
    for (let index = 0; index < names.length; index++) put(globalThis, names[index], data[names[index]]);
    put(globalThis, "tools", toolbox(told.tools));
  };
  hooks.start = (program) => {
    // No `then` from outside is looked up here: the program may have put its own in its place by now.
    (async () => {
      let value;
      try {
        value = await apply(program, undefined, []);
      } catch (error) {
        seal("thrown", told(error));
        return;
      }
      settle(value);
    })();
  };
  let arrived, next = 0;
  hooks.arrive = (given) => {
    arrived = parse(given);
    next = 0;
  };
  // One result at a time: what follows from it happens before the next one is looked at.
  hooks.take = () => {
    const result = arrived[next];
    arrived[next++] = undefined;
    const waiting = pending[result[0]];
    if (waiting === undefined) return;
    delete pending[result[0]];
    now = result[1];
    if (result[3] === null) { waiting.resolve(exact(result, 2, result.length > 4 ? result[4] : undefined)); return; }
    const error = new ToolError(result[3][0]);
    show(error, "tool", waiting.name);
    show(error, "category", result[3][1]);
    mark(error, result[0]);
    waiting.reject(error);
  };
  hooks.drain = () => {
    const state = '{"calls":[' + apply(join, outbox, [","]) + '],"log":' + stringify(apply(join, log, [""])) + "," +
      '"breach":' + stringify(breach) + ',"finished":' + stringify(finished) + ',"call":' + text(failedCall) + "}";
    outbox = list();
    log = list();
    return state;
  };
  hooks.result = () => outcome;
  return hooks;
})()
