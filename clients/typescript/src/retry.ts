/** Sends a request again that was not answered, with the same body, so that what it asks for counts once. */

/** How long to insist on an answer, in seconds. */
export interface Patience {
  /** Seconds to wait for an answer. */
  timeout?: number;
  /** How often a call is sent again. */
  retries?: number;
  /** Seconds for all attempts of a call. */
  deadline?: number;
}

/** The service refused a call, or did not answer within the deadline. */
export class ServiceError extends Error {
  override readonly name = "ServiceError";
  /** Status of the answer, null if there was none. */
  readonly status: number | null;

  constructor(status: number | null, message: string, options?: ErrorOptions) {
    super(message, options);
    this.status = status;
  }
}

const FIRST = 0.1; // seconds before the first retry, which double each time
const LONGEST = 2; // and the most
const UNSENT = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT"];

const unsure = new WeakSet<Response>();

/** Whether an earlier attempt may have been carried out, though its answer was lost. */
export const mayHaveCounted = (answer: Response): boolean => unsure.has(answer);

/** A `fetch` that sends requests again which got no answer, 503 or 429. */
export function insisting({ timeout = 5, retries = 8, deadline = 30 }: Patience): (request: Request) => Promise<Response> {
  for (const [name, value] of Object.entries({ timeout, deadline }))
    if (!(value > 0 && value < Infinity)) throw new RangeError(`${name} must be > 0 and finite, got ${value}`);
  if (!(retries >= 0)) throw new RangeError(`retries must be >= 0, got ${retries}`);
  return async (request) => {
    const end = now() + deadline;
    let lost = false;
    for (let attempt = 0; ; attempt += 1) {
      const answer = await once(request, Math.min(timeout, Math.max(0.001, end - now())));
      if (request.signal.aborted) throw request.signal.reason;
      const final = answer instanceof Response && answer.status !== 429 && answer.status !== 503;
      const wait = pause(attempt, answer);
      if (final || attempt >= retries || now() + wait >= end) {
        if (!(answer instanceof Response)) throw unanswered(answer);
        if (lost) unsure.add(answer);
        return answer;
      }
      lost ||= answer instanceof Response ? answer.status === 503 : !UNSENT.includes(codeOf(answer));
      await new Promise((done) => setTimeout(done, 1000 * wait));
    }
  };
}

const now = (): number => performance.now() / 1000;

/** One attempt. What is no JSON, such as a log, is left to the caller to read as it comes. */
async function once(request: Request, seconds: number): Promise<Response | Error> {
  const late = new AbortController();
  const clock = setTimeout(() => late.abort(new Error(`there was none within ${seconds.toPrecision(3)} s`)), 1000 * seconds);
  try {
    const signal = AbortSignal.any([request.signal, late.signal]);
    const answer = await fetch(request.clone(), { signal, redirect: "manual" }); // a service never sends one elsewhere
    if (answer.ok && !answer.headers.get("content-type")?.startsWith("application/json")) return answer;
    const { status, statusText, headers } = answer;
    return new Response(await answer.arrayBuffer(), { status, statusText, headers });
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error));
  } finally {
    clearTimeout(clock);
  }
}

/** The seconds to wait before the next attempt: at least as many as the service asks for. */
function pause(attempt: number, answer: Response | Error): number {
  const wait = Math.min(FIRST * 2 ** attempt, LONGEST) * (0.5 + 0.5 * Math.random());
  const asked = answer instanceof Response ? answer.headers.get("retry-after") ?? "" : "";
  return /^\d+$/.test(asked) ? Math.max(wait, Number(asked)) : wait;
}

/** The system's name for what went wrong, such as ECONNREFUSED. */
function codeOf(error: Error): string {
  const { cause } = error;
  return cause instanceof Error && "code" in cause ? String(cause.code) : "";
}

function unanswered(error: Error): ServiceError {
  const why = codeOf(error) || (error.cause instanceof Error ? error.cause.message : error.message);
  return new ServiceError(null, `no answer from the service: ${why}`, { cause: error });
}
