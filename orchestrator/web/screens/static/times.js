// @ts-check
// Times as people say them, kept up to date.

/** @param {number} seconds */
export function lasting(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

/** @param {number} seconds since then */
export function ago(seconds) {
  if (seconds < 5) return "now";
  return `${seconds < 86400 ? lasting(seconds).replace(/ h .*/, " h") : lasting(seconds).replace(/ d .*/, " d")} ago`;
}

/** @param {number} at Unix seconds */
export function clock(at) {
  const then = new Date(at * 1000);
  const sameDay = then.toDateString() === new Date().toDateString();
  return then.toLocaleString(undefined, sameDay ? { timeStyle: "short" } : { dateStyle: "medium", timeStyle: "short" });
}

/** @param {number} seconds until then */
export const until = (seconds) => (seconds <= 0 ? "now" : `in ${lasting(seconds)}`);

/** Write the text of every `<time data-at>` below an element. @param {ParentNode} place */
export function tell(place) {
  const now = Date.now() / 1000;
  for (const time of place.querySelectorAll("time[data-at]")) {
    if (!(time instanceof HTMLElement)) continue;
    const at = Number(time.dataset.at);
    const text = time.dataset.form === "lasting" ? lasting(now - at) : time.dataset.form === "until" ? until(at - now) : time.dataset.form === "clock" ? clock(at) : time.dataset.form === "age" ? `${lasting(now - at)} ago` : ago(now - at);
    if (time.textContent !== text) time.textContent = text;
    if (!time.title) time.title = new Date(at * 1000).toLocaleString();
  }
}
