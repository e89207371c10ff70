"use strict";
// Clients that took no part in training, as the tables write them.
function newcomers() {
  const found = report.newcomers;
  if (!found) return;
  const body = section("newcomers", "Newcomers", "Clients that took no part in training. On arrival: the first prediction with what the server sends them; joined: after the method's own way to join. Means over newcomers, then over seeds.");
  drawn(body, () => [tableOf(found.rows, false), beside("newcomers", () => found.numbers, false)]);
}
