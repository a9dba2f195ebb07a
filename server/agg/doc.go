// Package agg decides which gradients make a step, and with which weights. It is the pure core
// behind --consistency (docs/consistency.md): it sees tickets, and no tensor or clock. Begin with
// Config, which is one point in the space of consistency settings, and Round.Decide, which makes a
// step.
//
// A Round collects the open tickets and says, when asked, whether they make the next step and with
// which weights. Every published configuration (bsp, backup workers, async, ssp, rennala) is a
// value of Config; no code here asks which one it is.
//
// Invariants:
//   - a push is counted at most once, whatever is retried, doubled or late;
//   - the counted pushes of a step ascend by kintsugi.PushID.Compare, so the sum does not depend on
//     the order of arrival;
//   - a ticket is never forgotten: it is counted, or refused with a reason, or its worker has left.
package agg
