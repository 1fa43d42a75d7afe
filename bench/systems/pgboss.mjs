// pg-boss: a thousand jobs for each poll, which comes twice a second at most.

import PgBoss from "pg-boss";
import { TEXT, gate, main, oneByOne, pulse, ran, timed } from "./harness.mjs";

const QUEUE = "work";

async function open(params, more = {}) {
  const boss = new PgBoss({
    connectionString: params.place,
    max: Math.max(params.threads ?? 1, 2),
    supervise: false,
    schedule: false,
    ...more,
  });
  boss.on("error", (error) => console.error(String(error)));
  await boss.start();
  await boss.createQueue(QUEUE);
  return boss;
}

const data = (number) => ({ number, text: TEXT });

async function store(boss, count) {
  for (let first = 0; first < count; first += 5000) {
    const size = Math.min(5000, count - first);
    await boss.insert(
      Array.from({ length: size }, (_, n) => ({ name: QUEUE, data: data(first + n) })),
    );
  }
}

await main({
  async enqueue(params) {
    const boss = await open(params);
    return oneByOne(params, (number) => boss.send(QUEUE, data(number)));
  },
  async bulk(params) {
    const boss = await open(params);
    await store(boss, 50);
    return timed(params.count, () => store(boss, params.count));
  },
  async fill(params) {
    await store(await open(params), params.count);
  },
  async worker(params) {
    const boss = await open(params, { supervise: true });
    gate();
    const options = { batchSize: params.batch ?? 1000, pollingIntervalSeconds: params.poll ?? 0.5 };
    await boss.work(QUEUE, options, async (jobs) => {
      for (const job of jobs) ran(job.data.number);
    });
    await new Promise((stop) => process.on("SIGTERM", stop));
    await boss.stop({ graceful: true, timeout: 3000 });
  },
  async pulse(params) {
    const boss = await open(params);
    return pulse(params, (number) => boss.send(QUEUE, data(number)));
  },
  async left(params) {
    const boss = await open(params);
    return { left: await boss.getQueueSize(QUEUE, { before: "completed" }) };
  },
});
