// pg-boss, through its library.
import pg from "pg";
import PgBoss from "pg-boss";
import { byCallers, CALLERS, handle, inPages, Notes, numbered, ownPids, speak, store } from "./speak.mjs";

const PAGE = 5_000;
const WORKERS = 4;
const BATCH = 1_000;
const pool = new pg.Pool({ connectionString: store, max: 4 });
let notes, boss;

async function started() {
  if (!boss) {
    boss = new PgBoss({ connectionString: store, max: 20 });
    boss.on("error", (error) => console.error(error));
    await boss.start();
    await boss.createQueue("note");
  }
  return boss;
}

const data = (job) => (job.waitMs ? { n: job.number, w: job.waitMs } : { n: job.number });

speak({
  prepare: async () => void (await started()),
  async work(order) {
    notes = new Notes(order.notes, order.each);
    const boss = await started();
    for (let worker = 0; worker < WORKERS; worker++) {
      await boss.work("note", { batchSize: BATCH, pollingIntervalSeconds: 0.5 }, async (jobs) => {
        await Promise.all(jobs.map((job) => handle(notes, job.data)));
      });
    }
    return ownPids();
  },
  async create(order) {
    const jobs = numbered(order);
    const boss = await started();
    if (order.way === "bulk") {
      await inPages(jobs, PAGE, (page) =>
        boss.insert(page.map((job) => ({ name: "note", data: data(job), startAfter: new Date(job.dueMs).toISOString() }))),
      );
    } else {
      await byCallers(jobs, order.way === "single" ? 1 : CALLERS, (job) =>
        boss.send("note", data(job), { startAfter: new Date(job.dueMs) }),
      );
    }
    return { created: jobs.length };
  },
  started: () => ({ started: notes.started }),
  async look(order) {
    const sql =
      "SELECT EXISTS (SELECT 1 FROM pgboss.job WHERE name = 'note' AND state < 'completed' AND start_after <= to_timestamp($1 / 1000.0)) AS open";
    return (await pool.query(sql, [order.untilMs])).rows[0];
  },
  async count(order) {
    const sql =
      "SELECT count(*) FILTER (WHERE state = 'completed')::int AS recorded, count(*) FILTER (WHERE state <> 'completed')::int AS left, " +
      "(extract(epoch FROM max(completed_on)) * 1000)::float8::bigint::text AS last FROM pgboss.job " +
      "WHERE name = 'note' AND (data ->> 'n')::bigint >= $1 AND (data ->> 'n')::bigint < $2";
    const { recorded, left, last } = (await pool.query(sql, [order.first, order.end])).rows[0];
    return { recorded, left, lastMs: last === null ? null : Number(last) };
  },
  async end() {
    await boss?.stop({ graceful: true, timeout: 15_000, wait: true });
    notes?.write();
  },
});
