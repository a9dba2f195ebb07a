// Package dbw chooses how many gradients each step waits for: dynamic backup workers.
//
// The more a step waits for, the less noise is in it and the longer it takes. Which number is best depends on how
// far the times of workers spread, on the model, and on how far the training has come; a Controller finds it
// while the run goes on. Xu, Neglia and Sebastianelli, Dynamic Backup Workers for Parallel Machine Learning
// (2021), take k = argmax Ĝ(k)/T̂(k): the expected decrease of the loss by a step with k gradients, over the time
// until the k-th is there. It is here as published ("dbw:paper"), beside its blind variant that looks at times
// alone ("bdbw"), AdaSync ("adasync:K") and a fixed number.
//
// What "dbw" does differently, each because the published form was measured to lose by it:
//
//   - The curvature comes from gradients along the way that the parameters went (secant), not from differences of
//     noisy losses. With the decrease of the loss along the same way it costs two numbers per shard and step.
//   - The gain looks further ahead than one step: noise lifts the loss once, by the height of its
//     floor, while progress adds up (Estimate.Gain). A greedy gain waits for far too many. Progress
//     is measured along the way, and bounded by the losses: where they stand still or swing, the
//     way tells of progress that is none (descent).
//   - Every gradient times every step that its worker has missed (durations), so that slow workers are seen without
//     being waited for.
//   - A change of the workers' times is detected, and what was learnt before is then all but forgotten.
//
// The core is pure: it is told what happened and when, and returns what to wait for, with the reason in words.
//
// Invariants:
//   - a quota lies between 1 and the number of members, whatever has happened before;
//   - an estimate is a function of what was told and its order; nothing is random;
//   - what is not a finite number changes no estimate.
package dbw
