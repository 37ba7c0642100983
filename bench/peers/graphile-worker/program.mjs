// graphile-worker, through its library.
import { Logger, makeWorkerUtils, parseCronItems, run, runMigrations } from "graphile-worker";
import pg from "pg";
import { byCallers, CALLERS, handle, inPages, Notes, numbered, ownPids, speak, store } from "./speak.mjs";

const PAGE = 10_000;
const logger = new Logger(() => (level, message) => level === "error" && console.error(message));
const pool = new pg.Pool({ connectionString: store, max: 4 });
let notes, runner, utils;
let crons = [];

const creating = async () => (utils ??= await makeWorkerUtils({ connectionString: store, logger }));
const options = (job) => ({ runAt: new Date(job.dueMs), maxAttempts: 25 });
const payload = (job) => (job.waitMs ? { n: job.number, w: job.waitMs } : { n: job.number });

speak({
  prepare: () => runMigrations({ connectionString: store, logger }),
  async crons(order) {
    crons = parseCronItems(
      Array.from({ length: order.jobs }, (_, n) => ({ task: "note", match: "* * * * *", payload: { n }, identifier: `c${n}` })),
    );
  },
  async work(order) {
    notes = new Notes(order.notes, order.each);
    runner = await run(
      {
        connectionString: store,
        noHandleSignals: true,
        logger,
        parsedCronItems: crons,
        preset: {
          worker: {
            maxPoolSize: 25,
            concurrentJobs: 24,
            pollInterval: 100,
            localQueue: { size: 500 },
            completeJobBatchDelay: 0,
            failJobBatchDelay: 0,
          },
        },
      },
      { note: (job) => handle(notes, job) },
    );
    return ownPids();
  },
  async create(order) {
    const jobs = numbered(order);
    const { addJob, addJobs } = await creating();
    if (order.way === "bulk") {
      await inPages(jobs, PAGE, (page) =>
        addJobs(page.map((job) => ({ identifier: "note", payload: payload(job), ...options(job) }))),
      );
    } else {
      await byCallers(jobs, order.way === "single" ? 1 : CALLERS, (job) => addJob("note", payload(job), options(job)));
    }
    return { created: jobs.length };
  },
  started: () => ({ started: notes.started }),
  async look(order) {
    const sql = "SELECT EXISTS (SELECT 1 FROM graphile_worker._private_jobs WHERE run_at <= to_timestamp($1 / 1000.0)) AS open";
    return (await pool.query(sql, [order.untilMs])).rows[0];
  },
  async count(order) {
    const sql =
      "SELECT count(*)::int AS left FROM graphile_worker._private_jobs " +
      "WHERE (payload ->> 'n')::bigint >= $1 AND (payload ->> 'n')::bigint < $2";
    return { recorded: null, lastMs: null, ...(await pool.query(sql, [order.first, order.end])).rows[0] };
  },
  async end() {
    await runner?.stop();
    notes?.write();
  },
});
