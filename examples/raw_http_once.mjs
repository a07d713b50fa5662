// `once` without the SDK: Node 18 or newer, nothing to install. Shares its keys, and so its work, with callers in
// other languages: a Python function `write_report(company)` under @runstate.once has the same key.
//
//   node examples/raw_http_once.mjs acme
import { createHash, randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

// --- the key of an argument list
function canonical(value) {
  if (Array.isArray(value)) return "[" + value.map(canonical).join(",") + "]";
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const members = Object.keys(value).sort(); // by UTF-16 code units
  return "{" + members.map((name) => JSON.stringify(name) + ":" + canonical(value[name])).join(",") + "}";
}

export function keyOf(name, args) {
  return name + ":" + createHash("sha256").update(canonical(args)).digest("hex").slice(0, 32);
}
// ---

const env = process.env;
const space = `${env.RUNSTATE_BASE_URL}/v1/spaces/${env.RUNSTATE_SPACE_ID}`;
const me = { holder: `node-${process.pid}`, holderSession: randomUUID() };

// One call. What got no answer, 429 or 503 is sent again under the same Idempotency-Key; every refusal is thrown.
async function call(method, path, body) {
  const headers = { authorization: `Bearer ${env.RUNSTATE_API_KEY}` };
  if (method !== "GET") headers["idempotency-key"] = randomUUID();
  for (let pause = 100; ; pause = Math.min(2 * pause, 10_000)) {
    let status, said, retryAfter;
    try {
      const answer = await fetch(space + path, {
        method, headers, body: body && JSON.stringify(body), signal: AbortSignal.timeout(40_000),
      });
      [status, said, retryAfter] = [answer.status, await answer.json(), answer.headers.get("retry-after")];
    } catch {
      // No answer, or none of the server's own.
    }
    if (status < 300) return said;
    if (status < 500 && status !== 429 && said?.error) {
      throw Object.assign(new Error(said.error.message), { code: said.error.code });
    }
    await sleep(retryAfter ? 1000 * retryAfter : pause * (0.5 + Math.random() / 2));
  }
}

async function once(name, args, work, { leaseSeconds = 30, attempts = 3 } = {}) {
  const run = await call("PUT", "/runs/" + encodeURIComponent(env.RUNSTATE_RUN || "default"), {});
  const asked = { scopeId: run.id, key: keyOf(name, args) };
  for (;;) {
    const got = await call("POST", "/once/acquire", { ...asked, ...me, leaseSeconds });
    if (got.state === "DONE") return got.result;
    if (got.state === "FAILED") throw new Error(got.lastError);
    if (got.state === "ACQUIRED") return await owned({ ...asked, token: got.token }, args, work, leaseSeconds, attempts);
    await call("GET", "/once?" + new URLSearchParams({ ...asked, waitMs: 20_000 })); // answers when it is no longer HELD
  }
}

// We have the key: work, renew every third of the lease, stop when that is refused, and record what comes of it.
async function owned(lease, args, work, leaseSeconds, attempts) {
  const lost = new AbortController();
  const renewing = setInterval(
    () => call("POST", "/once/renew", { ...lease, leaseSeconds }).catch((error) => lost.abort(error)),
    (1000 * leaseSeconds) / 3,
  );
  try {
    let result;
    try {
      result = await work(...args, lost.signal);
    } catch (error) {
      lost.signal.throwIfAborted();
      await call("POST", "/once/fail", { ...lease, error: String(error), maxAttempts: attempts });
      throw error;
    }
    await call("POST", "/once/complete", { ...lease, result }); // refused when the lease is lost
    return result;
  } finally {
    clearInterval(renewing);
  }
}

if (process.argv[2]) {
  const report = await once("write_report", [process.argv[2]], async (company) => {
    console.error(`process ${process.pid} works on ${company}`);
    await sleep(1000);
    return { company, pages: 12 };
  });
  console.log(JSON.stringify(report));
}
