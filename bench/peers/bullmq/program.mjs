// BullMQ, through its library.
import { Queue, Worker } from "bullmq";
import { Redis } from "ioredis";
import { byCallers, CALLERS, handle, inPages, Notes, numbered, ownPids, speak, store } from "./speak.mjs";

const PAGE = 1_000;
const connection = new Redis(store, { maxRetriesPerRequest: null });
const queue = new Queue("note", { connection });
let notes, worker;
let crons = 0;

const data = (job) => (job.waitMs ? { n: job.number, w: job.waitMs } : { n: job.number });
const options = (job) => ({ delay: Math.max(0, job.dueMs - Date.now()), jobId: `n${job.number}` });

// The answers to one command for each job.
async function ask(jobs, command) {
  const answers = [];
  await inPages(jobs, 5_000, async (page) => {
    const pipeline = connection.pipeline();
    for (const job of page) command(pipeline, `n${job}`);
    for (const [error, answer] of await pipeline.exec()) {
      if (error) throw error;
      answers.push(answer);
    }
  });
  return answers;
}

speak({
  prepare: async () => void (await queue.waitUntilReady()),
  crons: (order) => void (crons = order.jobs),
  async work(order) {
    notes = new Notes(order.notes, order.each);
    for (let n = 0; n < crons; n++) {
      await queue.upsertJobScheduler(`c${n}`, { pattern: "* * * * *" }, { name: "note", data: { n } });
    }
    worker = new Worker("note", (job) => handle(notes, job.data), { connection, concurrency: 100 });
    worker.on("error", (error) => console.error(error));
    await worker.waitUntilReady();
    return ownPids();
  },
  async create(order) {
    const jobs = numbered(order);
    if (order.way === "bulk") {
      await inPages(jobs, PAGE, (page) =>
        queue.addBulk(page.map((job) => ({ name: "note", data: data(job), opts: options(job) }))),
      );
    } else {
      await byCallers(jobs, order.way === "single" ? 1 : CALLERS, (job) => queue.add("note", data(job), options(job)));
    }
    return { created: jobs.length };
  },
  started: () => ({ started: notes.started }),
  async look(order) {
    const [delayed, waiting, active] = await Promise.all([
      connection.zcount(queue.toKey("delayed"), "-inf", (order.untilMs + 1) * 0x1000 - 1), // a score is a time times 4096
      connection.llen(queue.toKey("wait")),
      connection.llen(queue.toKey("active")),
    ]);
    return { open: delayed + waiting + active > 0 };
  },
  async count(order) {
    const numbers = Array.from({ length: order.end - order.first }, (_, place) => order.first + place);
    const done = await ask(numbers, (pipeline, id) => pipeline.zscore(queue.toKey("completed"), id));
    const stored = await ask(numbers, (pipeline, id) => pipeline.exists(queue.toKey(id)));
    const recorded = done.filter((score) => score !== null).length;
    const last = done.reduce((most, score) => Math.max(most, Number(score ?? 0)), 0);
    return { recorded, left: stored.filter(Boolean).length - recorded, lastMs: last || null };
  },
  async end() {
    await worker?.close();
    notes?.write();
  },
});
