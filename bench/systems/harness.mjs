// What the adapters on node need: the roles of harness.py, spoken in the same way.

import { openSync, readFileSync, readSync, statSync, writeSync } from "node:fs";

export const TEXT = "x".repeat(100);
const WARM = 50;
const PAUSE = [30, 80]; // milliseconds of silence before each job of a pulse
const PATIENCE = 15000; // milliseconds that a pulse waits for one job

/** A job's whole work: 24 bytes in the journal. The clock is the one Python calls monotonic. */
let journal;
export function ran(number) {
  journal ??= openSync(process.env.BENCH_JOURNAL, "a");
  const entry = Buffer.allocUnsafe(24);
  entry.writeBigInt64LE(BigInt(number), 0);
  entry.writeBigInt64LE(process.hrtime.bigint(), 8);
  entry.writeBigInt64LE(BigInt(process.env.BENCH_WORKER ?? 0), 16);
  writeSync(journal, entry);
}

/** Say that everything is loaded, and wait until it may begin. */
export function gate() {
  writeSync(1, "ready\n");
  readSync(0, Buffer.alloc(16));
}

export function sleep(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

function written() {
  try {
    return Number(/wchar: (\d+)/.exec(readFileSync("/proc/self/io", "utf8"))[1]);
  } catch {
    return 0;
  }
}

export async function timed(count, work) {
  gate();
  const wrote = written();
  const cpu = process.cpuUsage();
  const wall = process.hrtime.bigint();
  await work();
  const seconds = Number(process.hrtime.bigint() - wall) / 1e9;
  const used = process.cpuUsage(cpu);
  return { count, seconds, cpu: (used.user + used.system) / 1e6, written: written() - wrote };
}

/** `one(number)` for each number, by so many callers at a time as there are threads elsewhere. */
export async function oneByOne(params, one) {
  for (let number = 1; number <= WARM; number++) await one(-number);
  const callers = params.threads ?? 1;
  const share = Math.floor(params.count / callers);
  const part = async (first) => {
    for (let number = first; number < first + share; number++) await one(number);
  };
  return timed(share * callers, () =>
    Promise.all(Array.from({ length: callers }, (_, n) => part(n * share))),
  );
}

/** Store one job at a time, each when the one before has run, and note when it had returned. */
export async function pulse(params, one) {
  const returned = [];
  const size = () => statSync(params.journal).size;
  const longest = Math.max(PAUSE[1], 1000 * (params.poll ?? 0));
  for (let number = 0; number < params.count; number++) {
    await sleep(PAUSE[0] + Math.random() * (longest - PAUSE[0]));
    const before = size();
    await one(number);
    returned.push([number, Number(process.hrtime.bigint())]);
    const deadline = Date.now() + PATIENCE;
    while (size() === before && Date.now() < deadline) await sleep(5);
  }
  return { returned };
}

/** Run the role that the command line names and print what it returns. */
export async function main(roles) {
  const [name, text] = process.argv.slice(2);
  const params = JSON.parse(text);
  if (params.journal) {
    process.env.BENCH_JOURNAL = params.journal;
    process.env.BENCH_WORKER = String(params.worker ?? 0);
  }
  const answer = await roles[name](params);
  writeSync(1, JSON.stringify(answer ?? {}) + "\n");
  process.exit(0);
}
