// plainjob on better-sqlite3 as shipped: WAL, synchronous NORMAL, one job at a time.

import Database from "better-sqlite3";
import { better, defineQueue, defineWorker, JobStatus } from "plainjob";
import { TEXT, gate, main, oneByOne, pulse, ran, timed } from "./harness.mjs";

const quiet = { error: console.error, warn() {}, info() {}, debug() {} };

function open(params) {
  return defineQueue({ connection: better(new Database(params.place)), logger: quiet });
}

const data = (number) => ({ number, text: TEXT });
const numbers = (count) => Array.from({ length: count }, (_, number) => data(number));

await main({
  enqueue(params) {
    const queue = open(params);
    return oneByOne(params, (number) => queue.add("work", data(number)));
  },
  bulk(params) {
    const queue = open(params);
    queue.addMany("work", numbers(50));
    return timed(params.count, () => queue.addMany("work", numbers(params.count)));
  },
  fill(params) {
    open(params).addMany("work", numbers(params.count));
  },
  async worker(params) {
    const queue = open(params);
    const work = async (job) => ran(JSON.parse(job.data).number);
    const options = { queue, logger: quiet, pollIntervall: 1000 * (params.poll ?? 1) };
    const worker = defineWorker("work", work, options);
    process.on("SIGTERM", () => process.exit(0));
    gate();
    await worker.start();
  },
  pulse(params) {
    const queue = open(params);
    return pulse(params, (number) => queue.add("work", data(number)));
  },
  left(params) {
    const queue = open(params);
    const count = (status) => queue.countJobs({ status });
    return { left: count(JobStatus.Pending) + count(JobStatus.Processing) };
  },
});
