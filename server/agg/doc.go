// Package agg decides which gradients make a step.
//
// It is the consistency family of knobs as a pure core: it sees tickets, never tensors, never a clock. A
// Round collects the open tickets and says, when asked, whether they make the next step and with which
// weights. Every published configuration (bsp, backup workers, async, ssp, rennala) is a point in the
// space that Config spans; nothing here asks which one it is.
//
// Invariants:
//   - a push is counted at most once, whatever is retried, doubled or late;
//   - the counted pushes of a step are ascending by kintsugi.PushID.Compare, so that the sum does not
//     depend on the order of arrival;
//   - a ticket is never forgotten: it is counted, or refused with a reason, or its worker has left.
package agg
