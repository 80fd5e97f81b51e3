/** The client against a real service, whose address is in ROBANDIT_URL: with answers that get lost on the way. */

import assert from "node:assert/strict";
import { createServer, request, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";

import { Client, ServiceError, type Creation } from "robandit-client";

const URL_ = process.env["ROBANDIT_URL"] ?? "";
const SHOP: Creation = { features: { action: { price: [0, 50], colour: ["red", "blue"] } }, rewards: "clicks" };
const THINGS = [
  { id: "shirt", features: { price: 20, colour: "red" } },
  { id: "scarf", features: { price: 35, colour: "blue" } },
];

type Pass = (answered: (found: IncomingMessage) => void) => void;
type Way = (number: number, asked: IncomingMessage, answer: ServerResponse, pass: Pass) => void;

/** A proxy before the service; `way` says what becomes of each request. Returns how many there were. */
async function between(way: Way, work: (url: string) => Promise<void>, port = 0): Promise<number> {
  let seen = 0;
  const proxy: Server = createServer((asked, answer) => {
    const { method, headers } = asked;
    way((seen += 1), asked, answer, (answered) => asked.pipe(request(URL_ + asked.url, { method, headers }, answered)));
  });
  await new Promise<void>((done) => proxy.listen(port, "127.0.0.1", done));
  try {
    await work(`http://127.0.0.1:${(proxy.address() as AddressInfo).port}`);
  } finally {
    proxy.closeAllConnections();
    proxy.close();
  }
  return seen;
}

const through = (answer: ServerResponse, pass: Pass) =>
  pass((found) => found.pipe(answer.writeHead(found.statusCode ?? 500, found.headers)));

/** Lose the answers to the first requests, though the service carries them out. */
const losing = (first: number): Way => (number, asked, answer, pass) => {
  if (number > first) through(answer, pass);
  else pass((found) => found.resume().on("end", () => asked.socket.destroy()));
};

async function refused(work: Promise<unknown>): Promise<ServiceError> {
  const found = await work.then(() => null, (error: unknown) => error);
  assert(found instanceof ServiceError);
  return found;
}

test("a bandit is made, decides and learns", async () => {
  const client = new Client(URL_);
  const made = await client.create("shop", SHOP);
  assert.equal(made.settings.policy, "quorum");
  assert.equal((await client.create("shop", SHOP)).version, made.version);
  const chosen = await client.decide("shop", { actions: THINGS, source: "web", context: null });
  assert(["shirt", "scarf"].includes(chosen.action_id) && chosen.propensity > 0);
  assert.equal(await client.reward("shop", chosen.decision_id, 1), "accepted");
  assert.equal(await client.reward("shop", chosen.decision_id, 1), "duplicate");
  assert.equal(await client.reward("shop", chosen.decision_id, 0), "conflict");
  assert.equal((await client.status("shop")).rewards, 1);
  assert.deepEqual(await client.bandits(), ["shop"]);
});

test("an id of one's own is one decision", async () => {
  const client = new Client(URL_);
  const asked = { actions: THINGS, decision_id: "visit-1" };
  assert.deepEqual(await client.decide("shop", asked), await client.decide("shop", asked));
});

test("what was carried out though its answer was lost counts once", async () => {
  const client = new Client(URL_);
  const before = await client.status("shop");
  let id = "";
  const asked = await between(losing(2), async (url) => {
    id = (await new Client(url).decide("shop", { actions: THINGS })).decision_id;
  });
  assert.equal(asked, 3);
  await between(losing(1), async (url) => {
    assert.equal(await new Client(url).reward("shop", id, 1), "accepted");
  });
  assert.equal(await client.reward("shop", id, 1), "duplicate");
  const after = await client.status("shop");
  assert.deepEqual([after.rounds - before.rounds, after.rewards - before.rewards], [1, 1]);
});

test("a duplicate stays one where no earlier attempt can have arrived", async () => {
  const { decision_id: id } = await new Client(URL_).decide("shop", { actions: THINGS });
  await new Client(URL_).reward("shop", id, 0);
  let closed = "";
  await between(() => undefined, async (url) => void (closed = url));
  const given = new Client(closed).reward("shop", id, 0);
  await new Promise((done) => setTimeout(done, 30)); // refused once by then
  const work = async () => assert.equal(await given, "duplicate");
  assert.equal(await between((_, __, answer, pass) => through(answer, pass), work, Number(new URL(closed).port)), 1);
});

test("a service that is busy is asked again, and one that refuses is not", async () => {
  const busy: Way = (number, _, answer, pass) => {
    if (number > 2) through(answer, pass);
    else answer.writeHead(number === 1 ? 503 : 429, { "Retry-After": "0" }).end('{"error":"wait"}');
  };
  const names = async (url: string) => assert.deepEqual(await new Client(url).bandits(), ["shop"]);
  assert.equal(await between(busy, names), 3);
  for (const status of [307, 500]) {
    const closed: Way = (_, __, answer) => void answer.writeHead(status, { Location: "/" }).end('{"error":"no"}');
    const alone = async (url: string) => assert.equal((await refused(new Client(url).bandits())).status, status);
    assert.equal(await between(closed, alone), 1);
  }
});

test("errors are typed, and say what the service says", async () => {
  const client = new Client(URL_);
  const unknown = await refused(client.status("nothing"));
  assert.equal(unknown.status, 404);
  assert.match(unknown.message, /nothing/);
  assert.equal((await refused(client.create("shop", { dim: 3 }))).status, 409);
  assert.equal((await refused(client.decide("shop", { actions: [] }))).status, 422);
});

test("nobody there", async () => {
  let closed = "";
  await between(() => undefined, async (url) => void (closed = url));
  const error = await refused(new Client(closed, { retries: 1 }).bandits());
  assert.deepEqual([error.status, error.message], [null, "no answer from the service: ECONNREFUSED"]);
  const silent: Way = () => undefined;
  await between(silent, async (url) => {
    const slow = await refused(new Client(url, { timeout: 0.05, retries: 2 }).bandits());
    assert.match(slow.message, /there was none within 0.0500 s/);
    const late = await refused(new Client(url, { timeout: 0.05, deadline: 0.2, retries: 99 }).bandits());
    assert.equal(late.status, null);
  });
});

test("what answers is no service", async () => {
  const page: Way = (_, __, answer) => void answer.writeHead(200, { "Content-Type": "application/json" }).end("<html>");
  await between(page, async (url) => {
    assert.match((await refused(new Client(url).bandits())).message, /no answer of a decision service/);
  });
});

test("a key is sent, and shown to nobody", async () => {
  const echo: Way = (_, asked, answer) => void answer.writeHead(401).end(`{"error":"${asked.headers.authorization}"}`);
  await between(echo, async (url) => {
    const client = new Client(url, { key: "secret-word" });
    assert.equal((await refused(client.bandits())).message, "Bearer [key]");
    assert(!JSON.stringify(client).includes("secret-word"));
  });
  assert.throws(() => new Client(URL_, { key: "two words" }), /printable ASCII/);
});

test("settings that are wrong", () => {
  for (const wrong of [{ timeout: 0 }, { deadline: Infinity }, { retries: -1 }])
    assert.throws(() => new Client(URL_, wrong), RangeError);
  assert.throws(() => new Client("localhost:8000"), /must begin with http/);
});

test("every other call is typed, too", async () => {
  const { calls } = new Client(URL_);
  const params = { path: { name: "shop" } };
  const { data } = await calls.GET("/v1/bandits/{name}", { params });
  const body = { version: data?.version ?? 0, exploration: 0.1 };
  const changed = await calls.PATCH("/v1/bandits/{name}", { params, body });
  assert(changed.response.status === 200 && changed.data);
  const log = await calls.GET("/v1/bandits/{name}/log", { params, parseAs: "text" });
  assert.equal(log.data?.trimEnd().split("\n").length, 8);
});

test("the compiler refuses what the service would", () => {
  const never = async (client: Client) => {
    // @ts-expect-error: there is no such setting
    await client.create("shop", { features: {}, polcy: "oful" });
    // @ts-expect-error: there is no such policy
    await client.create("shop", { dim: 3, policy: "sceptic" });
    // @ts-expect-error: this policy must be told the corruption
    await client.create("shop", { dim: 3, policy: "robust-weighted-oful" });
    // @ts-expect-error: actions have ids
    await client.decide("shop", { actions: [{ features: [1, 0] }] });
    // @ts-expect-error: a reward is a number
    await client.reward("shop", "visit-1", "1");
    // @ts-expect-error: there is no such path
    await client.calls.GET("/v1/bandit");
    const outcome = await client.reward("shop", "visit-1", 1);
    // @ts-expect-error: a reward is accepted, a duplicate, a conflict, expired or unknown
    return outcome === "refused";
  };
  assert.equal(typeof never, "function");
});
