// The entry with the largest number. `args` is what the tool is called with.
const found = Object.entries(args.numbers).sort(([, a], [, b]) => b - a);
return found.length ? {name: found[0][0], number: found[0][1]} : null;
