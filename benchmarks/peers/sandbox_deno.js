// One warm process of Deno: each program is a worker without permissions, which lives as long as the program does.
//
// Lines of JSON in: {run, source, inputs, limit} begins one, {run, results: [[number, value | null, error | null]]} goes on.
// Lines out: {run, calls: [[number, name, arguments]]}, {run, value}, {run, error}.
const HARNESS = Deno.args[0];
const inside = `
  const pending = new Map();
  let outbox = [], number = 0;
  const send = () => { postMessage({ calls: outbox }); outbox = []; };
  const host = (name, args) => new Promise((resolve, reject) => {
    pending.set(++number, [resolve, reject]);
    if (outbox.push([number, name, args]) === 1) queueMicrotask(send);
  });
  onmessage = async ({ data }) => {
    if (data.results) {
      for (const [number, value, error] of data.results) {
        const [resolve, reject] = pending.get(number);
        pending.delete(number);
        if (error === null) resolve(value); else reject(new Error(error));
      }
      return;
    }
    try {
      postMessage({ value: await (${HARNESS})(host, data.source, data.inputs) });
    } catch (error) {
      postMessage({ error: String(error) });
    }
  };
`;
const address = URL.createObjectURL(new Blob([inside], { type: "text/javascript" }));
const encoder = new TextEncoder();
const workers = new Map();

const say = (message) => {
  const line = encoder.encode(JSON.stringify(message) + "\n");
  for (let done = 0; done < line.length; ) done += Deno.stdout.writeSync(line.subarray(done));
};

const begin = ({ run, source, inputs, limit }) => {
  const worker = new Worker(address, { type: "module", deno: { permissions: "none" } });
  const end = (message) => {
    clearTimeout(timer);
    worker.terminate();
    workers.delete(run);
    say({ run, ...message });
  };
  const timer = setTimeout(() => end({ error: "it takes longer than it may" }), limit * 1000);
  worker.onmessage = ({ data }) => {
    if (data.calls) say({ run, calls: data.calls });
    else end(data);
  };
  worker.onerror = (event) => {
    event.preventDefault();
    end({ error: event.message });
  };
  worker.postMessage({ source, inputs });
  workers.set(run, worker);
};

let rest = "";
for await (const piece of Deno.stdin.readable.pipeThrough(new TextDecoderStream())) {
  const lines = (rest + piece).split("\n");
  rest = lines.pop();
  for (const line of lines) {
    const message = JSON.parse(line);
    if (message.results) workers.get(message.run)?.postMessage(message);
    else begin(message);
  }
}
