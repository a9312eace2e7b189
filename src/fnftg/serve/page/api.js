// Requests to the server, with retries while it is busy.

const TRIES = 8;
const LONGEST_WAIT = 30; // seconds

/** An error of the server; `status` is 0 if there was no response. */
export class ApiError extends Error {
  constructor(status, code, message, field) {
    super(message);
    Object.assign(this, { status, code, field });
  }
}

/** Dispatches {waiting: seconds, why} while a request waits for a busy server, then {waiting: 0}. */
export const patience = new EventTarget();
const tell = (detail) => patience.dispatchEvent(new CustomEvent("change", { detail }));

async function request(path, options, signal) {
  const headers = { Accept: "application/json", ...(options.body && { "Content-Type": "application/json" }) };
  for (let attempt = 1; ; attempt++) {
    let response;
    try {
      response = await fetch(path, { ...options, headers, signal });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError(0, "unreachable", "The server does not respond. Is fnftg serve still running?");
    }
    const body = await response.json().catch((error) => {
      if (error.name === "AbortError") throw error;
      return null;
    });
    if (response.ok && body !== null) return body;
    const { code = "failed", message, field = null } = body?.error ?? {};
    const starting = response.status === 503;
    if ((response.status !== 429 && !starting) || attempt >= TRIES) {
      throw new ApiError(response.status, code, message ?? `The server responded with status ${response.status}.`, field);
    }
    const asked = Number.parseFloat(response.headers.get("Retry-After"));
    const seconds = Math.min(Math.max(Number.isFinite(asked) ? asked : 2, 0.2), LONGEST_WAIT);
    tell({ waiting: seconds, why: starting ? "The server is not ready yet" : "The server is busy" });
    await pause(seconds * 1000, signal).finally(() => tell({ waiting: 0 }));
  }
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(new DOMException("Aborted", "AbortError"));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, milliseconds);
    if (signal?.aborted) stop();
    signal?.addEventListener("abort", stop, { once: true });
  });
}

const post = (path, body, signal) => request(path, { method: "POST", body: JSON.stringify(body) }, signal);

export const model = (signal) => request("/v1/model", {}, signal);
export const relations = async (signal) => (await request("/v1/relations", {}, signal)).relations;
export const entity = (id, limit, signal) =>
  request(`/v1/entities/${encodeURIComponent(id)}?limit=${limit}`, {}, signal);
export const search = async (text, limit, signal) =>
  (await request(`/v1/entities?q=${encodeURIComponent(text)}&limit=${limit}`, {}, signal)).entities;
export const predict = async (body, signal) => (await post("/v1/predict", body, signal)).results;
export const explain = (body, signal) => post("/v1/explain", body, signal);

export const aborted = (error) => error?.name === "AbortError";
