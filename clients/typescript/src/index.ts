/** A client of robandit's decision service: docs/how-to/typescript.md says what its retries promise. */

import createClient, { type Client as Calls } from "openapi-fetch";

import { insisting, mayHaveCounted, type Patience, ServiceError } from "./retry.js";
import type { components, paths } from "./schema.js";

export { type Patience, ServiceError } from "./retry.js";
export type { components, paths } from "./schema.js";

type Schemas = components["schemas"];
export type Creation = Schemas["Creation"];
export type Status = Schemas["Status"];
export type Action = Schemas["Action"];
export type Choice = Schemas["Choice"];
export type Chosen = Schemas["Chosen"];
export type Feedback = Schemas["Feedback"];
export type Outcome = Schemas["Outcome"];

/** Settings of a client. */
export interface Options extends Patience {
  /** The key, if the service asks for one. */
  key?: string;
}

const AT_ONCE = 5000; // rewards in a request: even with the longest ids, the service takes it

/** A client of the decision service. A call that was not answered is sent again with the same ids. */
export class Client {
  /** Every call of the service by its path, typed. They are sent again as well, and answer `{ data, error, response }`. */
  readonly calls: Calls<paths>;
  readonly #key: string | undefined;

  constructor(url = "http://localhost:8000", { key, ...patience }: Options = {}) {
    if (!/^https?:\/\//.test(url)) throw new TypeError(`url must begin with http:// or https://, got ${url}`);
    if (key !== undefined && !/^[!-~]+$/.test(key)) throw new TypeError("key must be a word of printable ASCII");
    this.#key = key;
    const headers = key === undefined ? {} : { Authorization: `Bearer ${key}` };
    this.calls = createClient<paths>({ baseUrl: url, headers, fetch: insisting(patience) });
  }

  /** Create a bandit, or confirm that it exists as described. */
  async create(name: string, settings: Creation): Promise<Status> {
    return (await this.#done(this.calls.PUT("/v1/bandits/{name}", { ...at(name), body: settings }))).data;
  }

  /** Choose one of these actions. Without a `decision_id` of yours, the client draws one. */
  async decide(name: string, choice: Choice): Promise<Chosen> {
    const body = { ...choice, decision_id: choice.decision_id ?? crypto.randomUUID() };
    return (await this.#done(this.calls.POST("/v1/bandits/{name}/decisions", { ...at(name), body }))).data;
  }

  /** Give the reward of a decision. */
  async reward(name: string, decisionId: string, reward: number): Promise<Outcome["status"]> {
    const [outcome] = await this.rewards(name, [{ decision_id: decisionId, reward }]);
    if (outcome === undefined) throw new ServiceError(200, "the service answered about no reward");
    return outcome.status;
  }

  /** Give many rewards, in as few requests as it takes. If it throws, send all of them again. */
  async rewards(name: string, given: readonly Feedback[]): Promise<Outcome[]> {
    const outcomes: Outcome[] = [];
    for (let start = 0; start < given.length; start += AT_ONCE) {
      const body = given.slice(start, start + AT_ONCE);
      const { data, response } = await this.#done(this.calls.POST("/v1/bandits/{name}/rewards", { ...at(name), body }));
      outcomes.push(...(mayHaveCounted(response) ? ours(data.results) : data.results));
    }
    return outcomes;
  }

  /** How a bandit is doing. */
  async status(name: string): Promise<Status> {
    return (await this.#done(this.calls.GET("/v1/bandits/{name}", at(name)))).data;
  }

  /** The names of all bandits. */
  async bandits(): Promise<string[]> {
    return (await this.#done(this.calls.GET("/v1/bandits"))).data;
  }

  /** The answer of a call that went well. Whatever else becomes of it is a `ServiceError`. */
  async #done<T>(call: Promise<Answer<T>>): Promise<{ data: T; response: Response }> {
    const { data, error, response } = await call.catch((failed: unknown): never => {
      if (failed instanceof SyntaxError) throw new ServiceError(200, "this is no answer of a decision service");
      throw failed;
    });
    if (!response.ok) throw new ServiceError(response.status, this.#hide(reason(error, response)));
    if (data === undefined) throw new ServiceError(response.status, "this is no answer of a decision service");
    return { data, response };
  }

  /** Take the key out of a text: somebody on the way may have sent it back. */
  #hide(text: string): string {
    return this.#key === undefined ? text : text.replaceAll(this.#key, "[key]");
  }
}

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

const at = (name: string) => ({ params: { path: { name } } });

/** Why the service refused a call: its own words, if it was the service that answered. */
function reason(error: unknown, response: Response): string {
  if (typeof error === "object" && error !== null && "error" in error) return String(error.error);
  return (typeof error === "string" && error.slice(0, 200)) || response.statusText;
}

/** Call the first duplicate of a decision accepted: a lost answer, or an earlier call, had accepted its reward. */
function ours(outcomes: readonly Outcome[]): Outcome[] {
  const seen = new Set<string>();
  return outcomes.map((one) => {
    const first = !seen.has(one.decision_id);
    seen.add(one.decision_id);
    return first && one.status === "duplicate" ? { ...one, status: "accepted" } : one;
  });
}
