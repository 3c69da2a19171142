// The latest end that a lease can have: dry runs find it. Decisions only; `check` sends them.

const DAY = 86400_000;
const FURTHEST = 30 * DAY;
const MOST = 12; // dry runs
const EXACT = 300_000; // ms

/**
 * @param {object} lease
 * @param {function(Date): Promise} check resolves if the end is admitted; raises a Problem if not
 * @returns {Promise<{end: Date|null, isBound: boolean, reason: string}>} `isBound`: it cannot end later
 */
export async function latestEnd(lease, check) {
  const present = Date.parse(lease.end);
  let [low, high, reason] = [present, present + FURTHEST, ""];
  let next = high;
  for (let count = 0; count < MOST && next > low; count += 1) {
    const problem = await refused(check, new Date(next));
    if (!problem) {
      low = next;
      if (next === present + FURTHEST) return { end: new Date(low), isBound: false, reason: "" };
    } else {
      high = next;
      reason = reasonOf(problem);
    }
    next = candidate(low, high, problem, present);
    if (next === null) break;
  }
  if (low <= present) return { end: null, isBound: true, reason };
  return { end: new Date(low), isBound: true, reason };
}

/** Why a later end is refused, in one sentence. Pure. */
export function reasonOf({ code, detail }) {
  return code === "not_enough_resources" ? "Other leases have its resources after its end." : detail;
}

/** The next end to check, in ms; null once `low` is near enough to `high`. Pure. */
export function candidate(low, high, problem, present) {
  const hints = [];
  const { alternatives = [], blocked_by: blocked = [] } = problem?.body || {};
  for (const item of alternatives) if (item.differs === "shorter") hints.push(Date.parse(item.end));
  for (const item of blocked) hints.push(Date.parse(item.start));
  if (hints.includes(low)) return null; // What is in the way begins there.
  const fitting = hints.filter((time) => time > Math.max(low, present) && time < high);
  if (fitting.length) return Math.max(...fitting);
  if (high - low <= EXACT) return null;
  return Math.floor((low + high) / 2 / 60_000) * 60_000;
}

async function refused(check, end) {
  try {
    await check(end);
    return null;
  } catch (error) {
    if (error.status >= 400 && error.status < 500 && error.status !== 412 && error.status !== 429) return error;
    throw error;
  }
}
