// graphile-worker, as shipped or with its local queue, which claims and completes in batches.

import pg from "pg";
import { makeWorkerUtils, run, Logger } from "graphile-worker";
import { TEXT, gate, main, oneByOne, pulse, ran, timed } from "./harness.mjs";

const quiet = new Logger(() => (level, message) => {
  if (level === "error") console.error(message);
});

async function open(params) {
  const pool = new pg.Pool({ connectionString: params.place, max: params.threads ?? 1 });
  const utils = await makeWorkerUtils({ pgPool: pool, logger: quiet });
  await utils.migrate();
  return { pool, utils };
}

const payload = (number) => ({ number, text: TEXT });

async function store(utils, count) {
  const jobs = Array.from({ length: count }, (_, number) => ({
    identifier: "work",
    payload: payload(number),
  }));
  if (count) await utils.addJobs(jobs);
}

await main({
  async enqueue(params) {
    const { utils } = await open(params);
    return oneByOne(params, (number) => utils.addJob("work", payload(number)));
  },
  async bulk(params) {
    const { utils } = await open(params);
    await store(utils, 50);
    return timed(params.count, () => store(utils, params.count));
  },
  async fill(params) {
    const { utils } = await open(params);
    await store(utils, params.count);
  },
  async worker(params) {
    const { pool } = await open(params);
    await pool.end();
    const concurrency = params.concurrency ?? 10;
    const worker = { connectionString: params.place, concurrentJobs: concurrency };
    if (params.local) {
      worker.localQueue = { size: params.local };
      worker.completeJobBatchDelay = 0;
      worker.failJobBatchDelay = 0;
    }
    gate();
    const runner = await run({
      preset: { worker: { ...worker, maxPoolSize: Math.max(concurrency, 10), logger: quiet } },
      noHandleSignals: true,
      taskList: { work: async (job) => ran(job.number) },
      parsedCronItems: [],
    });
    await new Promise((stop) => process.on("SIGTERM", stop));
    await runner.stop();
  },
  async pulse(params) {
    const { utils } = await open(params);
    return pulse(params, (number) => utils.addJob("work", payload(number)));
  },
  async left(params) {
    const { pool } = await open(params);
    const found = await pool.query("SELECT count(*)::int AS n FROM graphile_worker._private_jobs");
    return { left: found.rows[0].n };
  },
});
