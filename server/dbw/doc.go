// Package dbw chooses how many gradients each step waits for: dynamic backup workers. Begin with
// the interface Controller and with dynamic, the controller that --consistency dbw uses;
// Estimate.Gain has the main formula.
//
// A step that waits for more gradients has less noise and takes longer. The best number depends on
// how much the times of the workers spread, on the model, and on how far the training has come; a
// Controller finds it during the run. Xu, Neglia and Sebastianelli, Dynamic Backup Workers for
// Parallel Machine Learning (2021), take k = argmax Ĝ(k)/T̂(k): the expected decrease of the loss
// by a step with k gradients, divided by the time until the k-th gradient arrives. The package has
// that rule as published ("dbw:paper"), its blind variant that looks at times alone ("bdbw"),
// AdaSync ("adasync:K") and a fixed number.
//
// "dbw" differs from the published rule in four ways, because measurements showed that the
// published form loses by each:
//
//   - The curvature comes from gradients along the path of the parameters (secant), not from
//     differences of noisy losses. Together with the decrease of the loss along the same path, it
//     costs two numbers per shard and step.
//   - The gain looks further ahead than one step: noise lifts the loss once, to the height of its
//     floor, while progress adds up (Estimate.Gain). A gain that looks one step ahead waits for far
//     too many gradients. Progress is measured along the path and bounded by the losses: if they
//     stand still or swing, the path shows progress that does not exist (descent).
//   - Every gradient gives a time for every step that its worker has missed (durations). So slow
//     workers are measured without being waited for.
//   - A change of the workers' times is detected, and most of what was learnt before is then
//     forgotten.
//
// The core is pure: it is told what happened and when, and returns the quota with the reason in
// words.
//
// Invariants:
//   - a quota lies between 1 and the number of members, whatever has happened before;
//   - an estimate is a function of what the controller was told, in order; nothing is random;
//   - a number that is not finite changes no estimate.
package dbw
