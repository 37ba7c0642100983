// The part of the contract (bench/peers/__init__.py) that programs for Node share.
import fs from "node:fs";
import readline from "node:readline";

export const CALLERS = 16;
export const MINUTE_MS = 60_000;
export const store = process.env.BENCH_STORE;
console.log = console.error; // whatever a library prints is not an answer

export class Notes {
  constructor(path, each) {
    this.file = fs.openSync(path, "a");
    this.each = each;
    this.lines = [];
    this.started = 0;
  }
  start(number) {
    this.started++;
    this.note(number, "\n");
  }
  end(number) {
    this.note(number, " end\n");
  }
  note(number, rest) {
    // Whole milliseconds, rounded down: a start is never shown later than it was.
    this.lines.push(`${number} ${Date.now()}000${rest}`);
    if (this.each) this.write();
  }
  write() {
    const lines = this.lines;
    this.lines = [];
    for (let at = 0; at < lines.length; at += 10_000) fs.writeSync(this.file, lines.slice(at, at + 10_000).join(""));
  }
}

export function numbered(order) {
  return Array.from({ length: order.jobs }, (_, place) => ({
    number: order.first + place,
    dueMs: order.dueMs + Math.floor((place * order.stepUs) / 1000),
    waitMs: order.waitMs,
  }));
}

// One job a call; each caller waits for its answer before it calls again.
export async function byCallers(jobs, callers, create) {
  let next = 0;
  const call = async () => {
    while (next < jobs.length) await create(jobs[next++]);
  };
  await Promise.all(Array.from({ length: callers }, call));
}

export async function inPages(jobs, size, create) {
  for (let at = 0; at < jobs.length; at += size) await create(jobs.slice(at, at + size));
}

export async function handle(notes, job) {
  notes.start(job.n);
  if (job.w) {
    await new Promise((resolve) => setTimeout(resolve, job.w));
    notes.end(job.n);
  }
}

export const ownPids = () => ({ pids: { worker: [process.pid], scheduler: [process.pid] } });

// `orders` has a function for each order that the peer has a use for.
export async function speak(orders) {
  for await (const line of readline.createInterface({ input: process.stdin, crlfDelay: Infinity })) {
    const order = JSON.parse(line);
    const begun = performance.now();
    let answer;
    try {
      answer = { done: order.do, ...((await orders[order.do]?.(order)) ?? {}) };
    } catch (error) {
      answer = { failed: String(error?.stack ?? error).slice(0, 500) };
    }
    if (order.do === "create") answer.sec = (performance.now() - begun) / 1000;
    fs.writeSync(1, JSON.stringify(answer) + "\n");
    if (order.do === "end") process.exit(0);
  }
  process.exit(0);
}
